import CReactorLinux
import Glibc
import SystemPackage

/// What most connections do not have, or have only for a while.
struct SocketDetails {
    /// Takes one word, and no further memory while everything has its default.
    indirect enum Box {
        case defaults
        case custom(SocketDetails)
    }

    var options = SocketOptions()
    var requirements = SocketRequirements()
    /// Makes the connection.
    var opening: SocketOpening?
    /// Protects the connection.
    var channel: SecureChannel?
    /// Why the channel, or the proxy, has failed.
    var failure: (any Error)?
    /// The peer that the connector has found.
    var peer: SocketAddress?
    /// Set with the first timeout.
    var timeouts: SocketTimeouts?
    var waits = SocketWaits()
    /// The write buffer of an output that was closed before the socket is.
    var closedBuffer: WriteBuffer?
}

/// The waits of threads for the halves of a socket.
struct SocketWaits {
    private var input: DescriptorWait?
    private var output: DescriptorWait?

    subscript(half: SocketConnection.Half) -> DescriptorWait? {
        get { half == .input ? input : output }
        set { if half == .input { input = newValue } else { output = newValue } }
    }
}

// MARK: - Options

/// The options of a pair of socket streams.
struct SocketOptions {
    /// How long resolving and connecting may take: less than the kernel's two minutes of SYN retries, as in
    /// BSD.
    var connectTimeout: Duration = .seconds(75)
    var idleTimeout: Duration?
    var writeTimeout: Duration?
    /// Nil for the system's default.
    var noDelay: Bool?
    var keepAlive: Bool?
    var serviceType: SocketServiceType?

    /// Sets the options of the socket itself. Options that its family does not have are ignored.
    func apply(to socket: FileDescriptor) {
        if let noDelay { try? socket.setOption(CInt(IPPROTO_TCP), TCP_NODELAY, noDelay ? 1 : 0) }
        if let keepAlive { try? socket.setOption(SOL_SOCKET, SO_KEEPALIVE, keepAlive ? 1 : 0) }
        guard let serviceType else { return }
        // The lower two bits of the octet are for congestion notification.
        let octet = serviceType.codePoint << 2
        try? socket.setOption(CInt(IPPROTO_IP), IP_TOS, octet)
        try? socket.setOption(CInt(IPPROTO_IPV6), IPV6_TCLASS, octet)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        switch key {
        case .socketConnectTimeoutKey: connectTimeout
        case .socketIdleTimeoutKey: idleTimeout
        case .socketWriteTimeoutKey: writeTimeout
        case .socketNoDelayKey: noDelay
        case .socketKeepAliveKey: keepAlive
        case .serviceType: serviceType?.name
        default: nil
        }
    }

    /// Returns false if there is no such option, or if it cannot have that value.
    mutating func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        switch key {
        case .socketConnectTimeoutKey:
            guard let timeout = value as? Duration, timeout > .zero else { return false }
            connectTimeout = timeout
        case .socketIdleTimeoutKey: return Self.set(&idleTimeout, value)
        case .socketWriteTimeoutKey: return Self.set(&writeTimeout, value)
        case .socketNoDelayKey:
            guard let isOn = value as? Bool else { return false }
            noDelay = isOn
        case .socketKeepAliveKey:
            guard let isOn = value as? Bool else { return false }
            keepAlive = isOn
        case .serviceType:
            guard let type = SocketServiceType(propertyName(value)) else { return false }
            serviceType = type
        default: return false
        }
        return true
    }

    /// A timeout is positive, or nil for none.
    private static func set(_ timeout: inout Duration?, _ value: Any?) -> Bool {
        guard let value else {
            timeout = nil
            return true
        }
        guard let new = value as? Duration, new > .zero else { return false }
        timeout = new
        return true
    }
}

/// One of Cocoa's network service types, and its differentiated services code point according to RFC 4594.
struct SocketServiceType {
    let name: String
    let codePoint: CInt

    /// Nil if there is no such type.
    init?(_ name: String?) {
        // CS5, AF41, CS1 and EF.
        switch name {
        case "kCFStreamNetworkServiceTypeVoIP", "kCFStreamNetworkServiceTypeCallSignaling": codePoint = 40
        case "kCFStreamNetworkServiceTypeVideo": codePoint = 34
        case "kCFStreamNetworkServiceTypeBackground": codePoint = 8
        case "kCFStreamNetworkServiceTypeVoice": codePoint = 46
        default: return nil
        }
        self.name = name!
    }
}

/// The name that a property's value stands for: a string, Foundation's too, or a value with a string as its
/// raw value, boxed or not.
func propertyName(_ value: Any?) -> String? {
    value as? String ?? (value as? any RawRepresentable)?.rawValue as? String
}

// MARK: - Requirements

/// Why a stream does not open, or stops: it is required to do what this program does not support.
///
/// The stream neither sends plain bytes in place of protected ones, nor connects without the proxy.
public enum StreamRequirementError: Error, Hashable, Sendable {
    /// A security level that is not available was set: SSL 2 or 3, or any in a program without ReactorTLS.
    /// The value is Cocoa's name of the level.
    case securityUnavailable(level: String)
    /// A setting of the security is unknown, or has a value that it cannot have. The value is Cocoa's name
    /// of the setting.
    case securitySettingUnavailable(String)
    /// A proxy was set that cannot be used: Cocoa's dictionary of a SOCKS proxy has an unknown key or value
    /// or no host or port, or the stream connects to a Unix-domain address.
    case proxyUnavailable
}

extension StreamRequirementError: CustomStringConvertible {
    /// The reason.
    public var description: String {
        switch self {
        case .securityUnavailable(let level):
            "the security level \(level) is not available: ReactorTLS has TLS 1.2 and newer"
        case .securitySettingUnavailable(let setting):
            "the stream cannot have the security setting \(setting)"
        case .proxyUnavailable: "the stream cannot connect through the proxy that was set"
        }
    }
}

/// What a client requires of a connection and this library does not support.
struct SocketRequirements {
    static let noSecurity = "kCFStreamSocketSecurityLevelNone"
    private static let anySecurity = "kCFStreamSocketSecurityLevelNegotiatedSSL"

    /// Cocoa's name of the level.
    var securityLevel = noSecurity
    /// Why the connection cannot be protected as its properties require.
    var securityRefusal: (any Error)?
    /// What Cocoa's properties have asked for.
    var security: (any SocketSecurity)?
    /// The proxy to connect through.
    var proxy: StreamProxy?
    /// Whether a proxy was set that cannot be used.
    var isProxyUnavailable = false

    /// Why the connection may not be made, or not be used any longer.
    var refusal: (any Error)? {
        securityRefusal ?? (isProxyUnavailable ? StreamRequirementError.proxyUnavailable : nil)
    }

    /// The security level that a property's value requires: a name, as a string or in a type of its own,
    /// boxed, or in a dictionary of settings. An unknown value requires a security that there is not.
    static func securityLevel(_ value: Any?) -> String {
        guard let value else { return noSecurity }
        if let name = propertyName(value) { return name }
        guard let settings = value as? [AnyHashable: Any] else { return "\(value)" }
        return settings.first(where: isLevel).map { securityLevel($0.value) } ?? anySecurity
    }

    private static func isLevel(_ setting: (key: AnyHashable, value: Any)) -> Bool {
        let name = propertyName(setting.key.base)
        return name == "kCFStreamSSLLevel" || name == Stream.PropertyKey.securityLevel.rawValue
    }
}

extension SocketConnection {
    /// Why neither half opens or moves another byte.
    var refusal: (any Error)? { state.withLock { $0.refusal } }

    /// What the connection has beyond the defaults.
    var details: SocketDetails? {
        state.withLock { if case .custom(let details) = $0.detailsBox { details } else { nil } }
    }

    /// Whether an open half has a ``refusal``. A refusal sets the fault too, which is checked first, without
    /// the lock.
    var isRefused: Bool { fault != nil && refusal != nil }

    /// Sets Cocoa's level of security or its settings.
    ///
    /// - Returns: False if a connection that is open is protected already, or has failed.
    fileprivate func setSecurity(_ value: Any?) -> Bool {
        let level = SocketRequirements.securityLevel(value)
        if level == SocketRequirements.noSecurity { return unprotect() }
        let former = details?.requirements.security
        do {
            guard let bridge = SocketSecurities.bridge else {
                throw StreamRequirementError.securityUnavailable(level: level)
            }
            let settings = value as? [AnyHashable: Any]
            let security =
                try settings.map { try bridge.security(settings: $0) }
                ?? bridge.security(level: level, former)
            guard protect(by: security) else { return false }
            return require { ($0.securityLevel, $0.security, $0.securityRefusal) = (level, security, nil) }
        } catch {
            guard channel == nil || !state.withLock({ $0.hasOpened }) else { return false }
            return require { ($0.securityLevel, $0.securityRefusal) = (level, error) }
        }
    }

    /// Removes the protection, unless the connection has begun to have it.
    private func unprotect() -> Bool {
        let isPlain = state.withLock { $0.unprotect(isSocket: origin.isDescriptor) }
        return isPlain
            && require {
                ($0.securityLevel, $0.security, $0.securityRefusal) = (
                    SocketRequirements.noSecurity, nil, nil
                )
            }
    }

    /// Changes the requirements. A connection that cannot meet them, and exists or is being made, fails.
    ///
    /// - Returns: False if it has failed so already.
    private func require(_ change: (inout SocketRequirements) -> Void) -> Bool {
        let (isChanged, isLate, opening) = state.withLock { state -> (Bool, Bool, SocketOpening?) in
            guard !state.hasOpened || state.refusal == nil else { return (false, false, nil) }
            change(&state.details.requirements)
            let isLate = state.hasOpened && state.refusal != nil
            return (true, isLate, isLate ? state.details.opening.take() : nil)
        }
        guard isLate else { return isChanged }
        opening?.cancel()
        announce()
        fail(.protocolNotSupported, on: nil)
        return true
    }

    /// Sets the proxy: a ``StreamProxy``, or Cocoa's dictionary.
    ///
    /// - Returns: False for a connection that exists or is being made.
    fileprivate func setProxy(_ value: Any?) -> Bool {
        if case .descriptor = origin { return false }
        guard state.withLock({ !$0.hasOpened }) else { return false }
        let proxy = value as? StreamProxy ?? (value as? [AnyHashable: Any]).flatMap { StreamProxy(cocoa: $0) }
        let isUsable = proxy != nil && proxyTarget != nil
        return require { ($0.proxy, $0.isProxyUnavailable) = (proxy, value != nil && !isUsable) }
    }

    /// What a proxy connects to; nil for an existing socket and a Unix-domain address.
    var proxyTarget: ProxyNegotiation.Target? {
        switch origin {
        case .host(let name, let port): .name(name, port: port)
        case .address(let address): address.port == nil ? nil : .address(address)
        case .descriptor: nil
        }
    }
}

// MARK: - Properties

extension SocketConnection {
    func property(_ key: Stream.PropertyKey) -> Any? {
        switch key {
        case .socketDescriptorKey:
            let number = shared.number
            return number >= 0 ? FileDescriptor(rawValue: number) : nil
        case .shouldCloseNativeSocketKey: return shared.closesWhenDone
        case .socketRemoteHostNameKey:
            if case .host(let host, _) = origin { return host }
            return peer?.host
        case .socketRemotePortNumberKey:
            if case .host(_, let port) = origin { return Int(port) }
            return peer?.port.map { Int($0) }
        case .securityLevel: return state.withLock { $0.details.requirements.securityLevel }
        case .socketRemoteAddressKey: return peer
        case .socketLocalAddressKey:
            return try? shared.use { (number) throws(Errno) in
                try SocketAddress.local(of: FileDescriptor(rawValue: number))
            }
        case .socketPeerCredentialsKey:
            return (try? shared.use { (number) throws(Errno) in reactor_peer_credentials(number) })
                .flatMap { PeerCredentials($0) }
        case .writeBufferSizeKey: return bufferSlot.limit
        case .streamProxy: return details?.requirements.proxy
        case .socksProxy: return details?.requirements.proxy?.cocoaDictionary
        default: return channel?.property(key) ?? state.withLock { $0.details.options.property(key) }
        }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        switch key {
        case .shouldCloseNativeSocketKey:
            guard let closes = value as? Bool else { return false }
            shared.closesWhenDone = closes
            return true
        case .securityLevel, .securitySettings:
            return setSecurity(value)
        case .security:
            guard let security = value as? any SocketSecurity else { return false }
            return protect(by: security)
        case .socksProxy, .streamProxy: return setProxy(value)
        case .writeBufferSizeKey:
            guard let size = nonNegativeInteger(value) else { return false }
            bufferSlot.setLimit(size) { bufferTransport }
            return true
        default: return setOption(value, key)
        }
    }

    private func setOption(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        let isSet = state.withLock { state in
            if key == .socketConnectTimeoutKey, !state.isUnopened { return false }
            return state.details.options.setProperty(value, key)
        }
        guard isSet else { return false }
        try? shared.use { (number) throws(Errno) in
            state.withLock { $0.details.options }.apply(to: FileDescriptor(rawValue: number))
        }
        startTimeouts()
        return true
    }

    private var peer: SocketAddress? {
        if let known = state.withLock({ $0.details.peer }) ?? origin.address { return known }
        return try? shared.use { (number) throws(Errno) in
            try SocketAddress.peer(of: FileDescriptor(rawValue: number))
        }
    }
}

// MARK: - Errors

extension SocketConnection {
    /// What has failed, if `half` has.
    func failedOperation(of half: Half) -> IOError.Operation {
        let isConnected = state.withLock { state in
            if case .ready = state.connecting { true } else { false }
        }
        guard isConnected else { return .connect }
        return half == .input ? .read : .write
    }

    /// The peer, as an error names it.
    var subject: String {
        switch origin {
        case .host(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        case .address(let address), .descriptor(_, peer: let address?):
            address == .unixUnnamed ? "a Unix-domain peer" : "\(address)"
        case .descriptor(let number, peer: nil): "descriptor \(number)"
        }
    }
}

extension SocketConnection.Origin {
    var isDescriptor: Bool { if case .descriptor = self { true } else { false } }

    fileprivate var address: SocketAddress? {
        switch self {
        case .address(let address): address
        case .descriptor(_, let peer): peer
        case .host: nil
        }
    }
}

extension SocketConnection.State {
    /// - Parameter isSocket: Whether the connection is usable without a handshake.
    /// - Returns: Whether the connection is not protected.
    fileprivate mutating func unprotect(isSocket: Bool) -> Bool {
        guard case .custom(let details) = detailsBox, details.channel != nil else { return true }
        guard !hasOpened else { return false }
        self.details.channel = nil
        if isSocket, case .waiting = connecting { connecting = .ready }
        return true
    }

    fileprivate var isUnopened: Bool {
        if case .waiting = connecting { details.opening == nil } else { false }
    }

    /// How long the peer may accept no byte once the stream is closed.
    var stallTimeout: Duration {
        guard case .custom(let details) = detailsBox else { return WriteBuffer.defaultStallTimeout }
        return details.options.writeTimeout ?? WriteBuffer.defaultStallTimeout
    }
}
