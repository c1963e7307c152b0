extension Connection {
    /// The options of a connection.
    public struct Options: Sendable, Hashable {
        fileprivate static let standard = Options()
        /// How long name resolution, connecting, the proxy's part and the TLS handshake may take together before opening fails
        /// with `Errno.timedOut`. 75 s unless set.
        public var connectTimeout: Duration { didSet { Self.check(connectTimeout) } }
        /// How long the connection may wait for its peer without a byte in either direction before it fails with
        /// `Errno.timedOut`. Bytes that arrived before are delivered first. Nil, the default, for no limit.
        ///
        /// It waits while bytes have to be sent that the peer does not accept, and while a task waits for bytes. The time that
        /// a server takes for a request before it reads again does not count, and the next read has the whole time. A
        /// connection with a delegate waits as long as the delegate has received all that came and the peer has not ended its
        /// direction: set ``Connection/idleTimeout`` to nil while a delegate works on a request.
        public var idleTimeout: Duration? { didSet { Self.check(idleTimeout) } }
        /// How long the peer may accept none of the bytes that wait for it before the connection fails with `Errno.timedOut`.
        /// Nil, the default, for no limit. Set ``Connection/writeTimeout`` to change it later.
        public var writeTimeout: Duration? { didSet { Self.check(writeTimeout) } }
        /// How long a connection that was closed may take to send what was written, and to wait for the peer to close too; then
        /// it is reset, and fails with `Errno.timedOut` if bytes are lost. Nil, the default, for 30 s and as long as the bytes
        /// take at 1 KiB a second. A peer that takes none is reset after the write timeout, or 30 s.
        public var closeTimeout: Duration? { didSet { Self.check(closeTimeout) } }
        /// Whether the kernel sends small writes at once instead of collecting them (`TCP_NODELAY`, tcp(7)). True unless set:
        /// otherwise a message of more than one write may wait up to 40 ms for the peer's acknowledgement. IP only.
        public var noDelay: Bool
        /// Whether the kernel probes a silent peer and fails the connection when it is gone (`SO_KEEPALIVE`, socket(7)). The
        /// probes begin after two hours by default (tcp(7)); ``idleTimeout`` is the prompt way.
        public var keepAlive: Bool
        /// How many bytes ``Connection/send(_:)-([UInt8])`` accepts beyond those that the kernel takes, and in one message.
        /// 64 KiB unless set; 0 for a connection that tasks alone write.
        public var writeBufferSize: Int { didSet { Self.check(writeBufferSize) } }
        /// The proxy to connect through; nil for none. Ignored for a socket that exists, and for Unix-domain addresses opening
        /// fails.
        public var proxy: StreamProxy?

        /// Creates options.
        ///
        /// - Precondition: The timeouts are positive, and the write buffer's size is not negative. Setting them has the same
        ///   precondition.
        public init(
            connectTimeout: Duration = .seconds(75), idleTimeout: Duration? = nil,
            writeTimeout: Duration? = nil, closeTimeout: Duration? = nil,
            noDelay: Bool = true, keepAlive: Bool = false, writeBufferSize: Int = 65_536,
            proxy: StreamProxy? = nil
        ) {
            (self.connectTimeout, self.idleTimeout) = (connectTimeout, idleTimeout)
            (self.writeTimeout, self.closeTimeout) = (writeTimeout, closeTimeout)
            (self.noDelay, self.keepAlive) = (noDelay, keepAlive)
            (self.writeBufferSize, self.proxy) = (writeBufferSize, proxy)
            for timeout in [connectTimeout, idleTimeout, writeTimeout, closeTimeout] { Self.check(timeout) }
            Self.check(writeBufferSize)
        }

        fileprivate static func check(_ timeout: Duration?) {
            guard let timeout else { return }
            require(timeout > .zero, "A timeout of a connection must be positive, not \(timeout).")
        }

        private static func check(_ writeBufferSize: Int) {
            require(writeBufferSize >= 0, "A write buffer cannot have \(writeBufferSize) bytes.")
        }

        /// - Parameter isAccepted: Whether the socket has the options that its listener's has.
        func apply(to socket: SocketConnection, isAccepted: Bool) {
            if isAccepted, self == .standard { return }
            socket.setOptions(self, isAccepted)
        }
    }

    /// ``Options/idleTimeout``. Setting it begins the time anew: a server has one for the head of a request, another for its
    /// body, and none while it works. Any thread.
    ///
    /// - Precondition: Set to nil or a positive duration.
    public var idleTimeout: Duration? {
        get { socket.timeoutOptions.idleTimeout }
        set {
            Options.check(newValue)
            socket.changeTimeouts { $0.idleTimeout = newValue }
        }
    }

    /// ``Options/writeTimeout``. Setting it begins the time anew. Any thread.
    ///
    /// - Precondition: Set to nil or a positive duration.
    public var writeTimeout: Duration? {
        get { socket.timeoutOptions.writeTimeout }
        set {
            Options.check(newValue)
            socket.changeTimeouts { $0.writeTimeout = newValue }
        }
    }

    /// What protects a connection's bytes, such as ReactorTLS's `.tls()`.
    public struct Security: Sendable {
        let security: any SocketSecurity

        package init(_ security: any SocketSecurity) { self.security = security }
    }

    /// Protects the connection: before it is open if it is not opened yet, else from the next byte on.
    ///
    /// - Returns: False if the connection is closed, has failed, or is protected.
    package func protect(by security: Security) -> Bool { socket.setProperty(security.security, .security) }
}

extension SocketConnection {
    /// Sets the options of a connection that nothing has opened.
    fileprivate func setOptions(_ options: Connection.Options, _ isAccepted: Bool) {
        _ = changeOptions { state in
            let (idle, write) = (options.idleTimeout, options.writeTimeout)
            state.details.options = SocketOptions(
                connectTimeout: options.connectTimeout, idleTimeout: idle, writeTimeout: write,
                closeTimeout: options.closeTimeout,
                noDelay: options.noDelay && !isAccepted ? true : nil,
                keepAlive: options.keepAlive ? true : nil)
            return true
        }
        if let proxy = options.proxy { _ = setProperty(proxy, .streamProxy) }
    }
}
