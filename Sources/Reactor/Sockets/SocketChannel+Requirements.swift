import SystemPackage

/// What a client has asked of a connection beyond its bytes, none of which this library does.
struct SocketRequirements {
    var securityLevel = StreamSocketSecurityLevel.none
    var isProxied = false

    /// Why the connection may not be made, or used any longer; nil if nothing has been asked for.
    var refusal: StreamRequirementError? {
        if securityLevel != .none { return .securityUnavailable(securityLevel) }
        return isProxied ? .proxyUnavailable : nil
    }
}

extension SocketChannel {
    /// Why neither half opens, nor moves another byte.
    var refusal: StreamRequirementError? { state.withLock { $0.refusal } }

    /// Whether there is a ``refusal``, for a half that is open: then it came with a fault, and looking for that first
    /// spares the lock.
    var isRefused: Bool { fault != nil && refusal != nil }

    /// Changes what is asked of the connection; one that is there, or under way, ends if it cannot do that. False if
    /// it has ended so already.
    func require(_ change: (inout SocketRequirements) -> Void) -> Bool {
        let (isTaken, isLate, connector) = state.withLock { state -> (Bool, Bool, SocketConnector?) in
            guard !state.hasOpened || state.refusal == nil else { return (false, false, nil) }
            change(&state.details.requirements)
            let isLate = state.hasOpened && state.refusal != nil
            return (true, isLate, isLate ? state.takeConnector() : nil)
        }
        guard isLate else { return isTaken }
        connector?.cancel()
        changed?.broadcast()
        fail(.protocolNotSupported, on: nil)
        return true
    }

    /// Asks for a proxy, or takes that back; false for a connection that is there already, or under way.
    func requireProxy(_ isProxied: Bool) -> Bool {
        guard origin.isHost, state.withLock({ !$0.hasOpened }) else { return false }
        return require { $0.isProxied = isProxied }
    }
}

extension SocketChannel.Origin {
    /// Whether there is a way to choose.
    fileprivate var isHost: Bool {
        if case .descriptor = self { false } else { true }
    }
}
