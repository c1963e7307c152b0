public import SystemPackage

/// A failed operation on a file, a socket or another descriptor: what failed, on what, and why.
///
/// ```swift
/// if let error = stream.streamError as? IOError, error.errno == .connectionRefused { retry() }
/// print(stream.streamError!)  // connect to example.org:80: Connection refused
/// ```
public struct IOError: Error, Hashable, Sendable {
    /// What was attempted.
    public enum Operation: String, Sendable {
        /// Opening a file.
        case open
        /// Connecting to an address or a host.
        case connect
        /// Reading from a file, a descriptor or a connection.
        case read
        /// Writing to a file, a descriptor or a connection, also in the background.
        case write
        /// Binding a socket to its address.
        case bind
        /// Binding a listener to its address, and listening there.
        case listen
        /// Accepting a connection at a listener's address.
        case accept
        /// Receiving datagrams at a socket's address.
        case receive
        /// Sending a datagram.
        case send
        /// Watching a descriptor, a file or folder, a process, a measure of the system, or for signals.
        case watch
        /// Resolving a name.
        case resolve
        /// Starting a child process.
        case spawn
    }

    /// What was attempted.
    public let operation: Operation
    /// What it was attempted on: a path, an address, a host with its port, or a descriptor's number.
    public let subject: String
    /// Why it failed.
    public let errno: Errno

    /// Describes the failure of an operation.
    public init(_ operation: Operation, _ subject: String, _ errno: Errno) {
        self.operation = operation
        self.subject = subject
        self.errno = errno
    }
}

extension IOError: CustomStringConvertible {
    /// A line such as `connect to example.org:80: Connection refused`.
    public var description: String {
        let preposition =
            switch operation {
            case .open, .watch, .resolve, .spawn: ""
            case .connect, .write, .bind, .send: "to "
            case .read: "from "
            case .listen, .accept, .receive: "at "
            }
        return "\(operation.rawValue) \(preposition)\(subject): \(errno)"
    }
}

/// Calls `body`, and rethrows its error as that of `operation` on `subject`.
func attempt<Result: ~Copyable>(
    _ operation: IOError.Operation, _ subject: @autoclosure () -> String,
    _ body: () throws(Errno) -> Result
) throws(IOError) -> Result {
    do throws(Errno) { return try body() } catch { throw IOError(operation, subject(), error) }
}
