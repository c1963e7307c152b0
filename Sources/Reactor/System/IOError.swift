import Glibc
public import SystemPackage

/// An error that says what has failed: an ``IOError``, an error of ReactorTLS or ReactorHTTP, or that of a line or message that
/// cannot be read.
public protocol ReactorError: Error, Sendable, CustomStringConvertible {
    /// What has failed: a path, an address, a host with its port, a descriptor, a request, a line or a message.
    var subject: String { get }
    /// The error of the system call that failed, or the one that says the same; nil if there is none.
    var errno: Errno? { get }
}

/// A failed operation on a file, a socket or another descriptor: what failed, on what, and why.
///
/// ```swift
/// if let error = stream.streamError as? IOError, error.errno == .connectionRefused { retry() }
/// print(stream.streamError!)  // connect to example.org:80: Connection refused
/// ```
public struct IOError: ReactorError, Hashable {
    /// An operation that the library attempts.
    package enum Operation: String {
        case open, connect, read, write, bind, listen, accept, receive, send, watch, resolve, spawn
        case create, start, signal, resize, measure, join, leave, configure
        case handshake = "TLS handshake"
    }

    /// What was attempted, as messages name it, such as `open`, `connect`, `read` or `TLS handshake`, or what a program has
    /// passed.
    public let operation: String
    /// What it was attempted on: a path, an address, a host with its port, a descriptor, or a name for people of what has one.
    public let subject: String
    /// Why it failed.
    public let reason: Reason
    /// The label of the stream, the listener or the datagram socket that failed; nil for none.
    public let label: String?

    /// Describes the failure of an operation.
    public init(operation: String, subject: String, reason: Reason, label: String? = nil) {
        (self.operation, self.subject, self.reason, self.label) = (operation, subject, reason, label)
    }

    /// Describes the failure of one of the library's operations.
    package init(_ operation: Operation, _ subject: String, _ reason: Reason, label: String? = nil) {
        self.init(operation: operation.rawValue, subject: subject, reason: reason, label: label)
    }

    /// Describes one of the library's operations that failed with an error of a system call.
    package init(_ operation: Operation, _ subject: String, _ errno: Errno, label: String? = nil) {
        self.init(operation, subject, .system(errno), label: label)
    }

    /// The error of the system call that failed, or what a call with the same failure would say: `Errno.timedOut` for
    /// ``Reason/waitTimedOut``, `Errno.noData` for ``Reason/ended(bytesReceived:bytesRequested:)``,
    /// `Errno.protocolNotSupported` for what this program does not support.
    /// Nil for the answer of a resolver or a proxy.
    public var errno: Errno? {
        switch reason {
        case .system(let errno): errno
        case .waitTimedOut: .timedOut
        case .ended: .noData
        case .resolver, .proxy: nil
        case .unsupported: .protocolNotSupported
        }
    }

    /// The same failure of an item with a label.
    func labelled(_ label: String?) -> IOError {
        IOError(operation: operation, subject: subject, reason: reason, label: label)
    }
}

extension IOError: CustomStringConvertible {
    /// A line such as `connect to example.org:80: Connection refused`, or `read from example.org:80: ended after 3 of 10
    /// bytes`. A label is quoted behind the subject.
    public var description: String {
        let preposition =
            switch Operation(rawValue: operation) {
            case .connect, .write, .bind, .send: "to "
            case .handshake: "with "
            case .read: "from "
            case .listen, .accept, .receive: "at "
            default: ""
            }
        let name = label.map { " '\($0)'" } ?? ""
        return "\(operation) \(preposition)\(subject)\(name): \(reason)"
    }
}

// MARK: - Cocoa's codes

extension IOError {
    /// `NSPOSIXErrorDomain`, or `kCFErrorDomainCFNetwork` for the answer of a resolver or a proxy, as the domain of a
    /// Foundation `NSError`.
    public var _domain: String { errno == nil ? "kCFErrorDomainCFNetwork" : "NSPOSIXErrorDomain" }

    /// The errno value, `kCFHostErrorUnknown`, or one of Cocoa's codes of SOCKS errors, as the code of a Foundation `NSError`.
    public var _code: Int {
        switch reason {
        case .proxy(let code, _): code
        default: errno.map { Int($0.rawValue) } ?? 2
        }
    }
}

/// A descriptor, as errors and explanations name it.
package func descriptorName(_ number: CInt) -> String {
    switch number {
    case STDIN_FILENO: "standard input"
    case STDOUT_FILENO: "standard output"
    case STDERR_FILENO: "standard error"
    default: "descriptor \(number)"
    }
}

/// Calls `body`, and rethrows its error as that of `operation` on `subject`.
package func attempt<Result: ~Copyable>(
    _ operation: IOError.Operation, _ subject: @autoclosure () -> String,
    label: @autoclosure () -> String? = nil, _ body: () throws(Errno) -> Result
) throws(IOError) -> Result {
    do throws(Errno) { return try body() } catch {
        throw IOError(operation, subject(), error, label: label())
    }
}
