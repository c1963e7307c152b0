public import Reactor

// Cocoa's properties of security: `kCFStreamPropertySocketSecurityLevel` and `kCFStreamPropertySSLSettings`.

extension Stream.PropertyKey {
    /// A ``TLSSession``: what the handshake has agreed on, with the certificates of the peer; nil before
    /// that. Cocoa's is a `SecTrust`.
    public static let sslPeerTrustKey = Self("kCFStreamPropertySSLPeerTrust")

    /// The certificates that the peer has sent, its own first, as an array of arrays of bytes (DER).
    public static let sslPeerCertificatesKey = Self("kCFStreamPropertySSLPeerCertificates")
}

extension SocketSecurities: SocketSecurityBridge {
    package static func security(level: String, _ former: (any SocketSecurity)?) throws -> any SocketSecurity
    {
        try checkLevel(level)
        return try former ?? TLSSecurity(.client())
    }

    package static func security(settings dictionary: [AnyHashable: Any]) throws -> any SocketSecurity {
        var settings = TLSSettings.client()
        for (key, value) in dictionary { try apply(value, text(key.base) ?? "\(key)", to: &settings) }
        return try TLSSecurity(settings)
    }

    /// Every level means TLS 1.2 or newer.
    private static func checkLevel(_ level: String) throws {
        switch level {
        case "kCFStreamSocketSecurityLevelNegotiatedSSL", "kCFStreamSocketSecurityLevelTLSv1": break
        default: throw UnmetRequirement(.securityUnavailable(level: level))
        }
    }

    private static func apply(_ value: Any, _ key: String, to settings: inout TLSSettings) throws {
        let unavailable = UnmetRequirement(.securitySettingUnavailable(key))
        switch key {
        case "kCFStreamSSLLevel", "kCFStreamPropertySocketSecurityLevel":
            try checkLevel(text(value) ?? "\(value)")
        case "kCFStreamSSLPeerName":
            if isNull(value) {
                if settings.verification == .full { settings.verification = .chainWithoutName }
            } else {
                guard let name = text(value), !name.isEmpty else { throw unavailable }
                settings.peerName = name
            }
        case "kCFStreamSSLValidatesCertificateChain":
            guard let validates = value as? Bool else { throw unavailable }
            if !validates { settings.verification = .disabled }
        case "kCFStreamSSLIsServer":
            guard let isServer = value as? Bool else { throw unavailable }
            settings.role = isServer ? .server : .client
        case "kCFStreamSSLCertificates":
            let values = value as? [Any] ?? [value]
            settings.identities = values.compactMap { $0 as? TLSIdentity }
            guard settings.identities.count == values.count else { throw unavailable }
        default: throw unavailable
        }
    }

    /// A string, Foundation's too, or a value that has one as its raw value.
    private static func text(_ value: Any?) -> String? {
        value as? String ?? (value as? any RawRepresentable)?.rawValue as? String
    }

    /// Foundation's null, which this module does not know.
    private static func isNull(_ value: Any) -> Bool { "\(type(of: value))" == "NSNull" }
}
