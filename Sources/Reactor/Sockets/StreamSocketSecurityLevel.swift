/// How the bytes of a socket stream are protected on their way: Cocoa's values of
/// ``Stream/PropertyKey/socketSecurityLevelKey``.
///
/// This library has no TLS. A stream that is asked for any level but ``none`` does not open, and one that is asked
/// when it is open goes no further, with ``StreamRequirementError/securityUnavailable(_:)``: plain bytes are never sent
/// or read in the place of protected ones.
public struct StreamSocketSecurityLevel: RawRepresentable, Hashable, Sendable {
    /// Cocoa's name of the level.
    public let rawValue: String

    /// The level called `rawValue`.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Plain bytes.
    public static let none = Self(rawValue: "kCFStreamSocketSecurityLevelNone")
    /// SSL 2.
    public static let ssLv2 = Self(rawValue: "kCFStreamSocketSecurityLevelSSLv2")
    /// SSL 3.
    public static let ssLv3 = Self(rawValue: "kCFStreamSocketSecurityLevelSSLv3")
    /// TLS 1.
    public static let tlSv1 = Self(rawValue: "kCFStreamSocketSecurityLevelTLSv1")
    /// The best that both ends know.
    public static let negotiatedSSL = Self(rawValue: "kCFStreamSocketSecurityLevelNegotiatedSSL")
}

extension StreamSocketSecurityLevel {
    /// The level that a property's value asks for: its name, as a string, in a type of its own, boxed, or among
    /// settings.
    ///
    /// What is not understood asks for protection: it is never taken for the wish to do without.
    init(askedFor value: Any?) {
        guard let value else {
            self = .none
            return
        }
        if let name = propertyName(value) {
            self.init(rawValue: name)
        } else if let level = (value as? [AnyHashable: Any])?.first(where: Self.isLevel)?.value {
            self.init(askedFor: level)
        } else {
            self = .negotiatedSSL
        }
    }

    private static func isLevel(_ setting: (key: AnyHashable, value: Any)) -> Bool {
        let name = propertyName(setting.key.base)
        return name == "kCFStreamSSLLevel" || name == Stream.PropertyKey.socketSecurityLevelKey.rawValue
    }
}

/// The name that a property's value is: a string, Foundation's too, or what has one for its raw value, boxed or not.
func propertyName(_ value: Any?) -> String? {
    value as? String ?? (value as? any RawRepresentable)?.rawValue as? String
}
