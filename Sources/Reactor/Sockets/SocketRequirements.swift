/// The security and the proxy that the properties ask for, and why they cannot be had.
struct SocketRequirements {
    static let noSecurity = "kCFStreamSocketSecurityLevelNone"
    private static let anySecurity = "kCFStreamSocketSecurityLevelNegotiatedSSL"

    /// Cocoa's name of the level.
    private(set) var securityLevel = noSecurity
    /// Why the level cannot be had.
    private var levelRefusal: (any Error)?
    /// The protection of the connection, or why it cannot be had.
    private(set) var security: Result<any SocketSecurity, any Error>?
    /// Whether ``security`` has settings of its own, which Cocoa's properties do not change.
    private(set) var isTyped = false
    /// The proxy to connect through.
    var proxy: StreamProxy?
    /// Whether a proxy was set that cannot be used.
    var isProxyUnavailable = false

    /// Why the connection may not be made, or not be used any longer.
    var refusal: (any Error)? {
        if let levelRefusal { return levelRefusal }
        if case .failure(let error) = security { return error }
        return isProxyUnavailable ? UnmetRequirement(.proxyUnavailable) : nil
    }

    /// Requires a security with settings of its own. Returns false if there is one.
    mutating func protect(by security: any SocketSecurity) -> Bool {
        if isTyped { return false }
        (securityLevel, levelRefusal) = (Self.anySecurity, nil)
        (self.security, isTyped) = (.success(security), true)
        return true
    }

    /// What a value of Cocoa's level or settings changes. Locks nothing: this may call the value's own code.
    ///
    /// - Parameter former: What the connection is protected by already.
    static func securityChange(
        _ value: Any?, _ former: (any SocketSecurity)?
    ) -> (inout SocketRequirements) -> Bool {
        let levels = securityLevels(value)
        guard levels != [noSecurity] else { return { $0.removeSecurity() } }
        let (level, settings) = (levels.first ?? anySecurity, value as? [AnyHashable: Any])
        let result = Result { () throws -> any SocketSecurity in
            guard let bridge = SocketSecurities.bridge else {
                throw UnmetRequirement(.securityUnavailable(level: level))
            }
            if let settings { return try bridge.security(settings: settings) }
            return try bridge.security(level: level, former)
        }
        if settings == nil { return { $0.setLevel(level, result) } }
        return { $0.setSettings(result, levels.isEmpty ? nil : level) }
    }

    /// A level changes no settings, and makes none available. Returns false if it cannot be had and other
    /// than Cocoa's settings count.
    private mutating func setLevel(_ level: String, _ result: Result<any SocketSecurity, any Error>) -> Bool {
        var refusal: (any Error)?
        if case .failure(let error) = result { refusal = error }
        if isTyped { return refusal == nil }
        (securityLevel, levelRefusal) = (level, refusal)
        if refusal == nil, security == nil { security = result }
        return true
    }

    private mutating func setSettings(
        _ result: Result<any SocketSecurity, any Error>, _ level: String?
    ) -> Bool {
        if isTyped { return false }
        if level != nil { levelRefusal = nil }
        if levelRefusal == nil { securityLevel = level ?? Self.anySecurity }
        security = result
        return true
    }

    private mutating func removeSecurity() -> Bool {
        if isTyped { return false }
        (securityLevel, levelRefusal, security) = (Self.noSecurity, nil, nil)
        return true
    }

    /// The security levels that a property's value requires: a name, as a string or in a type of its own,
    /// boxed, or in a dictionary of settings, which may have none. An unknown value requires a security that
    /// there is not. Only a value that requires nothing else requires no security.
    private static func securityLevels(_ value: Any?) -> [String] {
        guard let value else { return [noSecurity] }
        if let name = propertyName(value) { return [name] }
        guard let settings = value as? [AnyHashable: Any] else { return ["\(value)"] }
        let levels = settings.filter(isLevel).map { propertyName($0.value) ?? "\($0.value)" }
        if !levels.isEmpty, levels.count == settings.count, Set(levels) == [noSecurity] {
            return [noSecurity]
        }
        return levels.filter { $0 != noSecurity }.sorted()
    }

    private static func isLevel(_ setting: (key: AnyHashable, value: Any)) -> Bool {
        let name = propertyName(setting.key.base)
        return name == "kCFStreamSSLLevel" || name == Stream.PropertyKey.securityLevel.rawValue
    }
}
