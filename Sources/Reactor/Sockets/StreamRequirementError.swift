/// Why a stream does not open, or goes no further: it was asked for what this library does not do.
///
/// The bytes that were to be protected, or to take another way, go nowhere instead.
public enum StreamRequirementError: Error, Hashable, Sendable {
    /// ``Stream/PropertyKey/socketSecurityLevelKey`` asks for a level other than ``StreamSocketSecurityLevel/none``.
    case securityUnavailable(StreamSocketSecurityLevel)
    /// ``Stream/PropertyKey/socksProxyConfigurationKey`` asks for a proxy.
    case proxyUnavailable
}

extension StreamRequirementError: CustomStringConvertible {
    /// The reason, as a sentence.
    public var description: String {
        switch self {
        case .securityUnavailable(let level):
            "The stream was asked for the security level \(level.rawValue), and has no TLS."
        case .proxyUnavailable: "The stream was asked to go through a SOCKS proxy, and cannot."
        }
    }
}
