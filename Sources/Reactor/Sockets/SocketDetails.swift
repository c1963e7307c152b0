/// What few connections have, or have for a while: what was set of them, and what connects them.
struct SocketDetails {
    var options = SocketOptions()
    var requirements = SocketRequirements()
    /// What is making the connection.
    var connecting: SocketConnector?
    /// Who was connected to.
    var peer: SocketAddress?
    /// There as soon as there is a timeout.
    var timeouts: SocketTimeouts?
    /// The waits of threads for the halves.
    var waits = SocketWaits()
    /// The bytes of an output that is closed, while the socket is not.
    var unsentBuffer: WriteBuffer?
}

/// Where a connection's details are: a word, and no memory besides for those that have none.
indirect enum SocketDetailsBox {
    case usual
    case own(SocketDetails)

    var details: SocketDetails {
        get { if case .own(let details) = self { details } else { SocketDetails() } }
        set { self = .own(newValue) }
    }
}

extension SocketChannel.State {
    /// What is making the connection, which has nobody to make it for any longer.
    mutating func takeConnector() -> SocketConnector? {
        guard let connector = details.connecting else { return nil }
        details.connecting = nil
        return connector
    }

    mutating func takeUnsentBuffer() -> WriteBuffer? {
        guard case .own(let details) = box, let buffer = details.unsentBuffer else { return nil }
        self.details.unsentBuffer = nil
        return buffer
    }

    var writeTimeout: Duration? {
        if case .own(let details) = box { details.options.writeTimeout } else { nil }
    }
}
