public import SystemPackage

/// Typed forms of the socket properties. Both halves of a pair share them.
extension Stream {
    /// The socket's descriptor; nil before there is one and after it was closed. The stream owns it: do not close it.
    public var socketDescriptor: FileDescriptor? { property(forKey: .socketDescriptorKey) as? FileDescriptor }

    /// The socket's own address, from getsockname(2); nil before there is a socket.
    public var localAddress: SocketAddress? { property(forKey: .socketLocalAddressKey) as? SocketAddress }

    /// The peer's address; nil before it is known.
    public var remoteAddress: SocketAddress? { property(forKey: .socketRemoteAddressKey) as? SocketAddress }

    /// How long name resolution and connecting may take together before opening fails with `Errno.timedOut`.
    ///
    /// 75 seconds by default; nil for a stream that is not a socket's.
    /// - Precondition: Set to a positive duration, before the pair is opened, on a socket stream.
    public var connectTimeout: Duration? {
        get { property(forKey: .socketConnectTimeoutKey) as? Duration }
        set { setOption(newValue, forKey: .socketConnectTimeoutKey) }
    }

    /// How long the connection may be idle in both directions before both halves fail with `Errno.timedOut`.
    ///
    /// Bytes that arrived before are delivered first. Nil, the default, disables the timeout.
    /// - Precondition: Set to nil or a positive duration, on a socket stream.
    public var idleTimeout: Duration? {
        get { property(forKey: .socketIdleTimeoutKey) as? Duration }
        set { setOption(newValue, forKey: .socketIdleTimeoutKey) }
    }

    /// How long the peer may accept none of the bytes that wait for it before both halves fail with `Errno.timedOut`.
    ///
    /// The failure comes up to a quarter of the timeout later. Nil, the default, disables the timeout.
    /// - Precondition: Set to nil or a positive duration, on a socket stream.
    public var writeTimeout: Duration? {
        get { property(forKey: .socketWriteTimeoutKey) as? Duration }
        set { setOption(newValue, forKey: .socketWriteTimeoutKey) }
    }

    /// Whether the kernel sends small writes at once instead of collecting them (`TCP_NODELAY`, tcp(7)).
    ///
    /// No effect on a Unix-domain socket.
    /// - Precondition: Set on a socket stream.
    public var noDelay: Bool {
        get { property(forKey: .socketNoDelayKey) as? Bool ?? false }
        set { setOption(newValue, forKey: .socketNoDelayKey) }
    }

    /// Whether the kernel probes a silent peer and fails the connection when it is gone (`SO_KEEPALIVE`, socket(7)).
    ///
    /// The probes begin after two hours by default (tcp(7)); ``idleTimeout`` is the prompt way.
    /// - Precondition: Set on a socket stream.
    public var keepAlive: Bool {
        get { property(forKey: .socketKeepAliveKey) as? Bool ?? false }
        set { setOption(newValue, forKey: .socketKeepAliveKey) }
    }

    private func setOption(_ value: Any?, forKey key: PropertyKey) {
        precondition(
            setProperty(value, forKey: key),
            "\(key.rawValue) cannot be \(value ?? "nil") here: is the stream a socket's, a timeout positive, a connect "
                + "timeout set before the stream is opened?")
    }
}
