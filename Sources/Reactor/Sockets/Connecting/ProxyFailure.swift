/// Why a proxy has not connected to a host.
enum ProxyFailure: Equatable {
    case generalFailure, notAllowed, networkUnreachable, hostUnreachable, connectionRefused, timeToLiveExpired
    case commandNotSupported
    /// The proxy, or the protocol, does not have this kind of address.
    case addressNotSupported
    /// The request was rejected or has failed: SOCKS 4 tells no more.
    case rejected
    /// The proxy cannot ask the client's machine for the user (SOCKS 4).
    case userUnknown
    case authenticationRequired, noAcceptableMethod, authenticationFailed
    /// A reply of this code, which the protocol does not define.
    case code(UInt8)
    /// HTTP's status, and the beginning of its phrase in printable ASCII.
    case status(Int, String)
    case notAProxy, closed
    /// A name, a user or a password is too long for the protocol, or has characters that it cannot have.
    case cannotBeEncoded

    /// A failure that SOCKS 5 reports.
    init(socks5 code: UInt8) {
        let failures: [Self] = [
            .generalFailure, .notAllowed, .networkUnreachable, .hostUnreachable, .connectionRefused,
            .timeToLiveExpired, .commandNotSupported, .addressNotSupported,
        ]
        self = failures.indices.contains(Int(code) - 1) ? failures[Int(code) - 1] : .code(code)
    }

    /// Cocoa's code of SOCKS errors: bad credentials, no acceptable method, a failed request or identification; else an unknown
    /// status.
    var cocoaCode: Int {
        switch self {
        case .authenticationFailed: 120
        case .authenticationRequired, .noAcceptableMethod: 122
        case .rejected: 110
        case .userUnknown: 111
        default: 113
        }
    }
}

extension ProxyFailure: CustomStringConvertible {
    var description: String {
        switch self {
        case .generalFailure: "general failure of the proxy"
        case .notAllowed: "not allowed by the proxy's rules"
        case .networkUnreachable: "network unreachable"
        case .hostUnreachable: "host unreachable"
        case .connectionRefused: "connection refused"
        case .timeToLiveExpired: "time to live expired"
        case .commandNotSupported: "the proxy does not connect to hosts"
        case .addressNotSupported: "the proxy does not support this kind of address"
        case .rejected: "rejected or failed"
        case .userUnknown: "the proxy cannot identify the user"
        case .authenticationRequired: "the proxy requires authentication"
        case .noAcceptableMethod: "the proxy accepts none of the offered authentication methods"
        case .authenticationFailed: "the proxy rejects the user name or the password"
        case .code(let code): "unknown reply code \(code)"
        case .status(let status, let phrase):
            phrase.isEmpty ? "HTTP status \(status)" : "HTTP status \(status) \(phrase)"
        case .notAProxy: "the reply is not a proxy's"
        case .closed: "the proxy has closed the connection"
        case .cannotBeEncoded: "a name, a user or a password cannot be sent to the proxy"
        }
    }
}
