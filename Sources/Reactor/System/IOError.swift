import Glibc
public import SystemPackage

/// A failed operation on a file, a socket or another descriptor: what failed, on what, and why.
///
/// ```swift
/// if let error = stream.streamError as? IOError, error.errno == .connectionRefused { retry() }
/// print(stream.streamError!)  // connect to example.org:80: Connection refused
/// ```
public struct IOError: Error, Hashable, Sendable {
    /// What was attempted.
    @nonexhaustive public enum Operation: String, Sendable {
        /// Opening a file.
        case open
        /// Connecting to an address or a host.
        case connect
        /// The TLS handshake of a connected socket.
        case handshake = "TLS handshake"
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
    /// What it was attempted on: a path, an address, a host with its port, or a descriptor.
    public let subject: String
    /// Why it failed.
    public let errno: Errno
    /// The label of the stream, the listener or the datagram socket that failed; nil for none.
    public let label: String?
    /// How many bytes came before the end of a stream that has fewer than were asked for; nil for other failures.
    ///
    /// 0 if the stream ended cleanly between messages.
    public let bytesReceived: Int?
    /// How many bytes were asked for, where ``bytesReceived`` says how many came; nil if a delimiter was.
    public let bytesRequested: Int?

    /// Describes the failure of an operation.
    public init(
        _ operation: Operation, _ subject: String, _ errno: Errno, label: String? = nil,
        bytesReceived: Int? = nil,
        bytesRequested: Int? = nil
    ) {
        (self.operation, self.subject, self.errno) = (operation, subject, errno)
        (self.label, self.bytesReceived, self.bytesRequested) = (label, bytesReceived, bytesRequested)
    }

    /// The same failure of an item with a label.
    func labelled(_ label: String?) -> IOError {
        IOError(
            operation, subject, errno, label: label, bytesReceived: bytesReceived,
            bytesRequested: bytesRequested)
    }
}

extension IOError: CustomStringConvertible {
    /// A line such as `connect to example.org:80: Connection refused`, or `read from example.org:80: ended after 3 of 10
    /// bytes`. A label is quoted behind the subject.
    public var description: String {
        let preposition =
            switch operation {
            case .open, .watch, .resolve, .spawn: ""
            case .connect, .write, .bind, .send: "to "
            case .handshake: "with "
            case .read: "from "
            case .listen, .accept, .receive: "at "
            }
        let name = label.map { " '\($0)'" } ?? ""
        return "\(operation.rawValue) \(preposition)\(subject)\(name): \(reason)"
    }

    private var reason: String {
        guard let bytesReceived else { return "\(errno)" }
        return "ended after \(bytesReceived)\(bytesRequested.map { " of \($0)" } ?? "") bytes"
    }
}

/// A descriptor, as errors and explanations name it.
func descriptorName(_ number: CInt) -> String {
    switch number {
    case STDIN_FILENO: "standard input"
    case STDOUT_FILENO: "standard output"
    case STDERR_FILENO: "standard error"
    default: "descriptor \(number)"
    }
}

/// Calls `body`, and rethrows its error as that of `operation` on `subject`.
func attempt<Result: ~Copyable>(
    _ operation: IOError.Operation, _ subject: @autoclosure () -> String,
    _ body: () throws(Errno) -> Result
) throws(IOError) -> Result {
    do throws(Errno) { return try body() } catch { throw IOError(operation, subject(), error) }
}
