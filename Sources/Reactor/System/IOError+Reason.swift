import Glibc
public import SystemPackage

extension IOError {
    /// Why an operation has failed.
    @nonexhaustive public enum Reason: Hashable, Sendable {
        /// A system call has failed, or a limit that the connection has was exceeded (`Errno.timedOut`).
        case system(Errno)
        /// The `timeout:` of the call has passed. What the call waited for has not happened, and may happen to a later call.
        case waitTimedOut
        /// The stream ended after so many bytes, and more were asked for: so many, or, with nil, up to a delimiter.
        ///
        /// `bytesReceived` is 0 if the stream ended between two messages.
        case ended(bytesReceived: Int, bytesRequested: Int?)
        /// A name could not be resolved: a code of getaddrinfo(3), such as `EAI_NONAME` for an unknown name, or `EAI_AGAIN`
        /// if a later lookup may succeed.
        case resolver(CInt)
        /// The proxy has not connected to the host. The code is Cocoa's for SOCKS proxies, also for HTTP's: 120 if the user or
        /// the password is wrong, 122 if the proxy requires another authentication, 110 for a rejected request, 111 for a
        /// user whom the proxy cannot identify, otherwise 113. The text says more; its wording may change.
        case proxy(code: Int, String)
        /// The stream cannot have what was set: a security level (SSL 2 or 3, or any in a program without ReactorTLS), a
        /// setting of the security, or a proxy. It sends no plain bytes, and does not connect without the proxy. The text is
        /// a sentence with Cocoa's name of the setting; its wording may change.
        case unsupported(String)

        package static func securityUnavailable(level: String) -> Self {
            .unsupported("the security level \(level) is not available: ReactorTLS has TLS 1.2 and newer")
        }

        package static func securitySettingUnavailable(_ setting: String) -> Self {
            .unsupported("the stream cannot have the security setting \(setting)")
        }

        package static let proxyUnavailable = unsupported(
            "the stream cannot connect through the proxy that was set")
    }
}

/// What a stream is required to do and this program does not support. The stream's error is an ``IOError`` with the reason.
package struct UnmetRequirement: Error, Hashable {
    package let reason: IOError.Reason

    package init(_ reason: IOError.Reason) { self.reason = reason }
}

extension IOError.Reason: CustomStringConvertible {
    /// The reason.
    public var description: String {
        switch self {
        case .system(let errno): "\(errno)"
        case .waitTimedOut: "timed out"
        case .ended(let received, let requested):
            "ended after \(received)\(requested.map { " of \($0)" } ?? "") bytes"
        case .resolver(let code): unsafe String(cString: gai_strerror(code))
        case .proxy(_, let text), .unsupported(let text): text
        }
    }
}

extension IOError.Reason {
    /// Why a wait of a task has ended: `Errno.timedOut` is its own timeout.
    static func endOfWait(_ errno: Errno) -> Self { errno == .timedOut ? .waitTimedOut : .system(errno) }
}
