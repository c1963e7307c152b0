import Glibc
import SystemPackage

extension SocketChannel {
    func property(_ key: Stream.PropertyKey) -> Any? {
        switch key {
        case .socketDescriptorKey:
            let number = holder.number
            return number >= 0 ? FileDescriptor(rawValue: number) : nil
        case .shouldCloseNativeSocketKey: return holder.closesWhenDone
        case .socketRemoteHostNameKey:
            if case .host(let host, _) = origin { return host }
            return peer?.host
        case .socketRemotePortNumberKey:
            if case .host(_, let port) = origin { return Int(port) }
            return peer?.port.map { Int($0) }
        case .socketSecurityLevelKey: return state.withLock { $0.details.requirements.securityLevel.rawValue }
        case .socketRemoteAddressKey: return peer
        case .socketLocalAddressKey:
            return try? holder.use { (number) throws(Errno) in
                try SocketAddress.local(of: FileDescriptor(rawValue: number))
            }
        case .writeBufferSizeKey: return bufferSlot.limit
        default: return state.withLock { $0.details.options.property(key) }
        }
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        switch key {
        case .shouldCloseNativeSocketKey:
            guard let closes = value as? Bool else { return false }
            holder.closesWhenDone = closes
            return true
        case .socketSecurityLevelKey, .securitySettings:
            let level = StreamSocketSecurityLevel(askedFor: value)
            return require { $0.securityLevel = level }
        case .socksProxyConfigurationKey: return requireProxy(value != nil)
        case .writeBufferSizeKey:
            guard let size = nonNegativeInteger(value) else { return false }
            bufferSlot.setLimit(size) { bufferTransport }
            return true
        default: return setOption(value, key)
        }
    }

    private func setOption(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        let isSet = state.withLock { state in
            // What only matters before the connection is made cannot be changed any more.
            if key == .socketConnectTimeoutKey, !state.isUnopened { return false }
            return state.details.options.setProperty(value, key)
        }
        guard isSet else { return false }
        try? holder.use { (number) throws(Errno) in state.withLock { $0.details.options }.apply(to: number) }
        keepTime()
        return true
    }

    /// Who is at the other end.
    private var peer: SocketAddress? {
        if let known = state.withLock({ $0.details.peer }) { return known }
        if case .address(let address) = origin { return address }
        return try? holder.use { (number) throws(Errno) in
            try SocketAddress.peer(of: FileDescriptor(rawValue: number))
        }
    }
}

extension SocketChannel.State {
    var isUnopened: Bool {
        if case .waiting = connection { details.connecting == nil } else { false }
    }
}

extension SocketOptions {
    func property(_ key: Stream.PropertyKey) -> Any? {
        switch key {
        case .socketConnectTimeoutKey: connectTimeout
        case .socketIdleTimeoutKey: idleTimeout
        case .socketWriteTimeoutKey: writeTimeout
        case .socketNoDelayKey: noDelay
        case .socketKeepAliveKey: keepAlive
        case .networkServiceType: serviceType?.rawValue
        default: nil
        }
    }

    /// False if there is no such option, or it cannot have that value.
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
        case .networkServiceType:
            guard let type = StreamNetworkServiceTypeValue(named: value) else { return false }
            serviceType = type
        default: return false
        }
        return true
    }

    /// A positive time, or nil for none.
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
