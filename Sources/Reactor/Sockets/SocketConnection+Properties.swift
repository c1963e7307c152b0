import CReactorLinux
import Glibc
import SystemPackage

/// The state that most connections have only for a while, or never.
///
/// `@unchecked Sendable`: only the connection's state refers to it, which the connection's lock guards.
final class SocketDetails: @unchecked Sendable {
    var options = ConnectionOptions.pair
    var serviceType: SocketServiceType?
    var requirements = SocketRequirements()
    /// The attempt to connect, while it is in progress.
    var opening: SocketOpening?
    /// Whether the connection was usable before it was protected.
    var isUpgrade = false
    /// Why the channel, or the proxy, has failed.
    var failure: (any Error)?
    /// The peer that the connector has found.
    var peer: SocketAddress?
    /// The waits of threads for the halves.
    var waits = SocketConnection.Halves<DescriptorWait?>(nil)
    /// The write buffer of an output that was closed before the socket is.
    var closedBuffer: WriteBuffer?
    /// The descriptor that bytes are still sent by after the connection was closed.
    var closing: SharedDescriptor?
}

// MARK: - Service types

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

    /// Marks a socket's packets, if its family can be marked.
    func apply(to socket: FileDescriptor) {
        // The lower two bits of the octet are for congestion notification.
        let octet = codePoint << 2
        try? socket.setOption(CInt(IPPROTO_IP), IP_TOS, octet)
        try? socket.setOption(CInt(IPPROTO_IPV6), IPV6_TCLASS, octet)
    }
}

/// The name that a property's value stands for: a string, Foundation's too, or a value with a string as its
/// raw value, boxed or not.
func propertyName(_ value: Any?) -> String? {
    value as? String ?? (value as? any RawRepresentable)?.rawValue as? String
}

// MARK: - Requirements

extension SocketConnection {
    /// Why neither half opens or moves another byte.
    var refusal: (any Error)? { state.withLock { $0.refusal } }

    /// Whether an open half is required to move no bytes. That sets the fault too, which is checked first,
    /// without the lock.
    var isRefused: Bool { failure != nil && state.withLock { $0.details?.requirements.refusal } != nil }

    /// Changes the requirements. Before the connection is opened they are only recorded. After that it is
    /// protected from the next byte on if they ask for it, and fails if it cannot meet them.
    ///
    /// - Parameter change: Returns whether the requirements can be changed so.
    /// - Returns: False if not, or if the connection is protected already, is closed or has failed. Also if its
    ///   output is shut down, or a reader may have read plain bytes ahead, which would count as protected.
    private func require(_ change: (inout SocketRequirements) -> Bool) -> Bool {
        let engines = state.withLock { $0.isReady ? $0.engines : Halves(nil) }
        let isTooLate = engines.input?.hasReadAhead ?? false || engines.output?.status == .atEnd
        let result = state.withLock { state -> RequirementChange in
            var requirements = state.requirements
            guard channel == nil, !state.hasOpened || state.refusal == nil, change(&requirements) else {
                return .refused
            }
            if case .success = requirements.security, isTooLate || !state.canBeProtected { return .refused }
            state.detailsToChange().requirements = requirements
            guard state.hasOpened else { return .recorded }
            if state.refusal != nil { return .unmet }
            guard state.security != nil else { return .recorded }
            state.detailsToChange().isUpgrade = state.isReady
            makeChannel(&state)
            return .protecting
        }
        switch result {
        case .refused: return false
        case .recorded: break
        case .unmet: fail(.protocolNotSupported, on: nil)
        case .protecting: beginProtecting()
        }
        return true
    }

    private enum RequirementChange {
        case refused
        case recorded
        /// The open connection cannot meet the requirements.
        case unmet
        /// A handshake follows, now or when the connection is made.
        case protecting
    }

    /// Protects the connection: before it is open if it is not opened yet, else from the next byte on.
    ///
    /// - Returns: False if the connection is closed, has failed, is protected, or is to be protected by another security.
    func protect(by security: any SocketSecurity) -> Bool { require { $0.protect(by: security) } }

    /// Sets the proxy.
    ///
    /// - Parameters:
    ///   - proxy: The proxy; nil for none, or for one that cannot be used.
    ///   - isRequired: Whether opening fails without a proxy that can be used.
    /// - Returns: False for a connection that exists or is being made.
    @discardableResult
    func setProxy(_ proxy: StreamProxy?, isRequired: Bool) -> Bool {
        if case .descriptor = origin { return false }
        guard state.withLock({ !$0.hasOpened }) else { return false }
        let isUsable = proxy != nil && proxyTarget != nil
        return require { requirements in
            (requirements.proxy, requirements.isProxyUnavailable) = (proxy, isRequired && !isUsable)
            return true
        }
    }

    /// The proxy that was set, if it can be used.
    var proxy: StreamProxy? { state.withLock { $0.details?.requirements.proxy } }

    /// The destination of a proxy; nil for an existing socket and a Unix-domain address.
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
    /// The socket's descriptor; nil before there is one, and once it is closed.
    var descriptor: FileDescriptor? {
        let number = shared.number
        return number >= 0 ? FileDescriptor(rawValue: number) : nil
    }

    /// The socket's own address (getsockname(2)); nil before there is a socket.
    var localAddress: SocketAddress? {
        try? shared.use { (number) throws(Errno) in
            try SocketAddress.local(of: FileDescriptor(rawValue: number))
        }
    }

    /// The peer's address; nil before it is known.
    var peerAddress: SocketAddress? {
        if let known = state.withLock({ $0.details?.peer }) ?? origin.address { return known }
        return try? shared.use { (number) throws(Errno) in
            try SocketAddress.peer(of: FileDescriptor(rawValue: number))
        }
    }

    var peerCredentials: PeerCredentials? {
        (try? shared.use { (number) throws(Errno) in reactor_peer_credentials(number) })
            .flatMap { PeerCredentials($0) }
    }
}

/// The properties of Cocoa's streams.
extension SocketConnection {
    func property(_ key: Stream.PropertyKey) -> Any? {
        switch key {
        case .shouldCloseNativeSocketKey: return shared.closesWhenDone
        case .socketRemoteHostNameKey:
            if case .host(let host, _) = origin { return host }
            return peerAddress?.host
        case .socketRemotePortNumberKey:
            if case .host(_, let port) = origin { return Int(port) }
            return peerAddress?.port.map { Int($0) }
        case .securityLevel: return state.withLock { $0.requirements.securityLevel }
        case .writeBufferSizeKey: return bufferSlot.limit
        case .socksProxy: return proxy?.cocoaDictionary
        case .serviceType: return state.withLock { $0.details?.serviceType }?.name
        default: return channel?.property(key)
        }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        switch key {
        case .shouldCloseNativeSocketKey:
            guard let closes = value as? Bool else { return false }
            shared.closesWhenDone = closes
            return true
        case .securityLevel, .securitySettings:
            let former = state.withLock { $0.security }
            return require(SocketRequirements.securityChange(value, former))
        case .socksProxy:
            let proxy = (value as? [AnyHashable: Any]).flatMap { StreamProxy(cocoa: $0) }
            return setProxy(proxy, isRequired: value != nil)
        case .writeBufferSizeKey:
            guard let size = nonNegativeInteger(value) else { return false }
            bufferSlot.setLimit(size) { bufferClient }
            return true
        case .serviceType: return setServiceType(SocketServiceType(propertyName(value)))
        default: return false
        }
    }

    private func setServiceType(_ type: SocketServiceType?) -> Bool {
        guard let type else { return false }
        state.withLock { $0.detailsToChange().serviceType = type }
        try? shared.use { (number) throws(Errno) in type.apply(to: FileDescriptor(rawValue: number)) }
        return true
    }
}

// MARK: - Errors

extension SocketConnection {
    /// What has failed, if `half` has. The handshake of an existing socket is no attempt to connect.
    func failedOperation(of half: Half) -> IOError.Operation {
        if let channel, channel.hasBegun, !channel.isEstablished { return .handshake }
        guard origin.isDescriptor || state.withLock({ $0.isReady }) else { return .connect }
        return state.withLock { $0.failure?.operation } ?? (half == .input ? .read : .write)
    }

    /// The peer, as an error names it.
    var subject: String {
        switch origin {
        case .host(let host, let port): endpointName(host, port)
        case .address(let address), .descriptor(_, peer: let address?):
            address == .unixUnnamed ? "a Unix-domain peer" : "\(address)"
        case .descriptor(let number, peer: nil): descriptorName(number)
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
    fileprivate var requirements: SocketRequirements { details?.requirements ?? SocketRequirements() }

    /// The protection of the connection, if the requirements ask for it.
    var security: (any SocketSecurity)? { try? details?.requirements.security?.get() }

    /// Whether the connection is still to move bytes.
    fileprivate var canBeProtected: Bool {
        switch connecting {
        case .ready, .waiting: !isClosed && failure == nil
        case .atEnd, .failed: false
        }
    }

    /// How long the rest of the bytes may take once the output is closed.
    var limits: WriteBuffer.Limits {
        (details?.options.writeTimeout).map { WriteBuffer.Limits(stallTimeout: $0) } ?? WriteBuffer.Limits()
    }
}
