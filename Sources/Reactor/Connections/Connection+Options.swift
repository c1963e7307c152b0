extension Connection {
    /// The options of a connection.
    public typealias Options = ConnectionOptions

    /// When the kernel probes a silent peer, and when it gives up.
    public typealias KeepAlive = ConnectionOptions.KeepAlive

    /// ``ConnectionOptions/idleTimeout``. Setting it begins the time anew: a server has one for the head of a request, another
    /// for its body, and none while it works. Any thread.
    ///
    /// - Precondition: Set to nil or a positive duration.
    public var idleTimeout: Duration? {
        get { socket.options.idleTimeout }
        set {
            Options.check(newValue)
            socket.changeTimeouts { $0.idleTimeout = newValue }
        }
    }

    /// ``ConnectionOptions/writeTimeout``. Setting it begins the time anew. Any thread.
    ///
    /// - Precondition: Set to nil or a positive duration.
    public var writeTimeout: Duration? {
        get { socket.options.writeTimeout }
        set {
            Options.check(newValue)
            socket.changeTimeouts { $0.writeTimeout = newValue }
        }
    }

    /// What protects a connection's bytes, such as ReactorTLS's `.tls()`.
    public struct Security: Sendable {
        let security: any SocketSecurity

        package init(_ security: any SocketSecurity) { self.security = security }

        /// Traps if it is a client's.
        func requireServer(_ name: StaticString) {
            require(security.isServer, "\(name) needs a server's security, such as .tls(.server(identity)).")
        }
    }

    /// Protects the connection, if there is a security: before it is open if it is not opened yet, else from the next byte on.
    ///
    /// - Returns: False if the connection is closed, has failed, or is protected.
    package func protect(by security: Security?) -> Bool {
        security.map { socket.protect(by: $0.security) } ?? true
    }

    /// Calls `body`, during which nothing is written. Returns false instead while a write has its turn.
    package func betweenWrites<Failure>(_ body: () throws(Failure) -> Void) throws(Failure) -> Bool {
        guard turns.takeIfFree() else { return false }
        defer { turns.pass() }
        try body()
        return true
    }
}
