import Glibc
import SystemPackage

/// The options of a connection: ``Connection/Options``.
public struct ConnectionOptions: Sendable, Hashable {
    static let standard = ConnectionOptions()
    /// Those of a pair of streams of Cocoa's: the kernel collects small writes.
    package static let pair = ConnectionOptions(noDelay: false)

    /// How long name resolution, connecting, the proxy's part and the TLS handshake may take together before opening fails
    /// with `Errno.timedOut`. 75 s unless set.
    public var connectTimeout: Duration { didSet { Self.check(connectTimeout) } }
    /// How long the connection may wait for its peer without a byte in either direction before it fails with
    /// `Errno.timedOut`. Bytes that arrived before are delivered first. Nil, the default, for no limit.
    ///
    /// It waits while bytes have to be sent that the peer does not accept, and while a task waits for bytes. The time that
    /// a server takes for a request before it reads again does not count, and the next read has the whole time. A
    /// connection with a delegate waits as long as the delegate has received all that came and the peer has not ended its
    /// direction: set ``Connection/idleTimeout`` to nil while a delegate works on a request. After the peer's end it waits
    /// only while bytes have to be sent.
    public var idleTimeout: Duration? { didSet { Self.check(idleTimeout) } }
    /// How long the peer may accept none of the bytes that wait for it before the connection fails with `Errno.timedOut`.
    /// Nil, the default, for no limit. Set ``Connection/writeTimeout`` to change it later.
    public var writeTimeout: Duration? { didSet { Self.check(writeTimeout) } }
    /// How long a connection that was closed may take to send what was written, and to wait for the peer to close too; then
    /// it is reset, and fails with `Errno.timedOut` if bytes are lost. Nil, the default, for 30 s and as long as the bytes
    /// take at 1 KiB a second, but 5 min at most. A peer that takes none is reset after the write timeout, or 30 s.
    public var closeTimeout: Duration? { didSet { Self.check(closeTimeout) } }
    /// Whether the kernel sends small writes at once instead of collecting them (`TCP_NODELAY`, tcp(7)). True unless set:
    /// otherwise a message of more than one write may wait up to 40 ms for the peer's acknowledgement. IP only.
    public var noDelay: Bool
    /// When the kernel probes a silent peer, to fail the connection when it is gone (`SO_KEEPALIVE`, socket(7)). Nil, the
    /// default, for never: ``idleTimeout`` does without the peer's part. TCP only.
    public var keepAlive: KeepAlive?
    /// How long bytes that were sent may wait for their acknowledgement before the kernel fails the connection with
    /// `Errno.timedOut` (`TCP_USER_TIMEOUT`, tcp(7)), in whole milliseconds. Nil, the default, for some 15 min.
    /// ``writeTimeout`` is for bytes that the kernel has not accepted yet.
    public var userTimeout: Duration? { didSet { Self.check(userTimeout) } }
    /// How many bytes the kernel queues until they are acknowledged, and for a Unix-domain socket until they are read
    /// (`SO_SNDBUF`, socket(7)). Linux doubles it for its own needs, and caps it at `net.core.wmem_max`. Nil, the default,
    /// for as many as the kernel finds useful: up to 4 MB on most systems.
    public var sendBufferSize: Int? { didSet { Self.check(sendBufferSize) } }
    /// How many bytes the kernel keeps until they are read (`SO_RCVBUF`, socket(7)): doubled, and capped at
    /// `net.core.rmem_max`. Nil, the default, for as many as the kernel finds useful: up to 6 MB on most systems.
    public var receiveBufferSize: Int? { didSet { Self.check(receiveBufferSize) } }
    /// The number of unsent bytes from which on the kernel accepts no more (`TCP_NOTSENT_LOWAT`, tcp(7)): what is written
    /// later, such as a newer price or a more urgent frame, waits behind no more than that. The throughput stays, as the
    /// bytes in flight do not count. Nil, the default, for the system's: no limit but the buffer's size.
    public var unsentLowWaterMark: Int? { didSet { Self.check(unsentLowWaterMark) } }
    /// How many bytes ``Connection/send(_:)-([UInt8])`` accepts beyond those that the kernel takes, and in one message.
    /// 64 KiB unless set; 0 for a connection that tasks alone write.
    public var writeBufferSize: Int { didSet { Self.check(writeBufferSize) } }
    /// The proxy to connect through; nil for none. Ignored for a socket that exists, and for Unix-domain addresses opening
    /// fails.
    public var proxy: StreamProxy?

    /// Creates options.
    ///
    /// - Precondition: The timeouts, the kernel's sizes and the low-water mark are positive, and the write buffer's size is
    ///   not negative. Setting them has the same precondition.
    public init(
        connectTimeout: Duration = .seconds(75), idleTimeout: Duration? = nil,
        writeTimeout: Duration? = nil, closeTimeout: Duration? = nil,
        noDelay: Bool = true, keepAlive: KeepAlive? = nil, userTimeout: Duration? = nil,
        sendBufferSize: Int? = nil, receiveBufferSize: Int? = nil, unsentLowWaterMark: Int? = nil,
        writeBufferSize: Int = 65_536, proxy: StreamProxy? = nil
    ) {
        (self.connectTimeout, self.idleTimeout) = (connectTimeout, idleTimeout)
        (self.writeTimeout, self.closeTimeout) = (writeTimeout, closeTimeout)
        (self.noDelay, self.keepAlive, self.userTimeout) = (noDelay, keepAlive, userTimeout)
        (self.sendBufferSize, self.receiveBufferSize) = (sendBufferSize, receiveBufferSize)
        self.unsentLowWaterMark = unsentLowWaterMark
        (self.writeBufferSize, self.proxy) = (writeBufferSize, proxy)
        for timeout in [connectTimeout, idleTimeout, writeTimeout, closeTimeout, userTimeout] {
            Self.check(timeout)
        }
        for size in [sendBufferSize, receiveBufferSize, unsentLowWaterMark] { Self.check(size) }
        Self.check(writeBufferSize)
    }

    static func check(_ timeout: Duration?) {
        guard let timeout else { return }
        require(timeout > .zero, "A timeout of a connection must be positive, not \(timeout).")
    }

    private static func check(_ kernelSize: Int?) {
        guard let kernelSize else { return }
        require(kernelSize > 0, "A size of the kernel's must be positive, not \(kernelSize).")
    }

    private static func check(_ writeBufferSize: Int) {
        require(writeBufferSize >= 0, "A write buffer cannot have \(writeBufferSize) bytes.")
    }

    /// When the kernel probes a silent peer, and when it gives up (tcp(7)).
    public struct KeepAlive: Sendable, Hashable {
        /// How long the peer is silent before the first probe, in whole seconds up to 32,767. Nil for the system's: two hours.
        public var idle: Duration?
        /// The time between two probes, likewise. Nil for the system's: 75 s.
        public var interval: Duration?
        /// How many probes without an answer fail the connection with `Errno.timedOut`: at most 127. Nil for the system's: 9.
        public var count: Int?

        /// Creates a value.
        ///
        /// - Precondition: What is given is positive.
        public init(idle: Duration? = nil, interval: Duration? = nil, count: Int? = nil) {
            for duration in [idle, interval] { ConnectionOptions.check(duration) }
            require(count ?? 1 > 0, "The kernel probes a peer at least once, not \(count!) times.")
            (self.idle, self.interval, self.count) = (idle, interval, count)
        }
    }
}

// MARK: - Setting them

extension SocketConnection {
    /// Sets the options of a connection that nothing has opened.
    ///
    /// - Parameter isAccepted: Whether the socket has the options that its listener's has.
    func setOptions(_ options: ConnectionOptions, isAccepted: Bool) {
        state.withLock { $0.detailsToChange().options = options }
        if !isAccepted {
            try? shared.use { (number) throws(Errno) in
                options.apply(to: FileDescriptor(rawValue: number))
            }
        }
        if let proxy = options.proxy { setProxy(proxy, isRequired: true) }
    }
}

extension ConnectionOptions {
    /// Sets the options that the kernel keeps. Those that the socket's family does not have are ignored.
    ///
    /// Before connect(2) or listen(2): the size of the receive buffer limits what window TCP can offer later. An accepted
    /// socket of TCP inherits the options of its listener's.
    func apply(to socket: FileDescriptor) {
        if noDelay { socket.setTCPOption(TCP_NODELAY, 1) }
        if let sendBufferSize { try? socket.setOption(SOL_SOCKET, SO_SNDBUF, CInt(clamping: sendBufferSize)) }
        if let receiveBufferSize {
            try? socket.setOption(SOL_SOCKET, SO_RCVBUF, CInt(clamping: receiveBufferSize))
        }
        if let unsentLowWaterMark {
            socket.setTCPOption(TCP_NOTSENT_LOWAT, CInt(clamping: unsentLowWaterMark))
        }
        if let userTimeout {
            socket.setTCPOption(TCP_USER_TIMEOUT, userTimeout.count(of: .milliseconds(1), upTo: .max))
        }
        keepAlive?.apply(to: socket)
    }
}

extension ConnectionOptions.KeepAlive {
    fileprivate func apply(to socket: FileDescriptor) {
        try? socket.setOption(SOL_SOCKET, SO_KEEPALIVE, 1)
        // The kernel refuses larger values.
        for (name, duration) in [(TCP_KEEPIDLE, idle), (TCP_KEEPINTVL, interval)] {
            guard let duration else { continue }
            socket.setTCPOption(name, duration.count(of: .seconds(1), upTo: 32_767))
        }
        if let count { socket.setTCPOption(TCP_KEEPCNT, CInt(min(count, 127))) }
    }
}

extension Duration {
    /// The number of `unit`s, rounded up.
    fileprivate func count(of unit: Duration, upTo limit: CInt) -> CInt {
        CInt(min((self / unit).rounded(.up), Double(limit)))
    }
}

extension FileDescriptor {
    fileprivate func setTCPOption(_ name: CInt, _ value: CInt) {
        try? setOption(CInt(IPPROTO_TCP), name, value)
    }
}
