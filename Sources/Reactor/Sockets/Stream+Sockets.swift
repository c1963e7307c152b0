package import SystemPackage

extension Stream {
    /// Creates two streams that share a connection to a host, given by name or as a numeric address.
    ///
    /// Opening either stream resolves the name (getaddrinfo(3)) and tries the addresses, a quarter of a
    /// second after one another and alternating between families, until one answers (RFC 8305). None of this
    /// blocks the loop's thread. Meanwhile the status is ``Status/opening``. Only a stream that was opened
    /// delivers ``Event/openCompleted`` or ``Event/errorOccurred``; one that is opened once the connection
    /// exists is open at once.
    ///
    /// Neither stream delivers an event before both are open, or before a pass of the loop, or a turn of the queue, of the
    /// one that is. Then both deliver ``Event/openCompleted`` before either delivers bytes or space; streams on different
    /// loops or queues do not wait for one another. Opening fails with an ``IOError``: with ``IOError/Reason/resolver(_:)`` if
    /// the name cannot be resolved, with the error of the last address if none answers, or with `Errno.timedOut` after
    /// 75 seconds, or the `connectTimeout`.
    ///
    /// The connection ends when both streams are closed; ``OutputStream/shutDown()`` ends one direction. A
    /// fault that one stream finds is also a fault of the other, which may read the bytes that arrived
    /// before.
    package static func connection(
        toHost host: String, port: UInt16
    ) -> (input: InputStream, output: OutputStream) {
        streams(of: SocketConnection(connectingTo: .host(host, port: port)))
    }

    /// Creates two streams that share a connection to an IPv4, IPv6 or Unix-domain address. Otherwise like
    /// ``connection(toHost:port:)``.
    package static func connection(to address: SocketAddress) -> (input: InputStream, output: OutputStream) {
        streams(of: SocketConnection(connectingTo: .address(address)))
    }

    /// Creates two streams that share a connected stream socket. They are open when ``open()`` returns, and deliver their
    /// events as those of ``connection(toHost:port:)`` do.
    ///
    /// The socket's file status flags do not matter, and stay as they are.
    /// - Parameters:
    ///   - descriptor: A connected socket.
    ///   - closeWhenDone: Whether closing both streams closes it.
    /// - Precondition: `descriptor` is not negative.
    package static func connection(
        descriptor: FileDescriptor, closeWhenDone: Bool = false
    ) -> (input: InputStream, output: OutputStream) {
        require(
            descriptor.rawValue >= 0,
            "Stream.connection(descriptor:) needs an open descriptor, not \(descriptor.rawValue).")
        let shared = SharedDescriptor(descriptor.rawValue, closesWhenDone: closeWhenDone)
        return streams(of: SocketConnection(shared))
    }

    /// Creates two streams that own an accepted connection.
    static func connection(
        accepted descriptor: FileDescriptor, from peer: SocketAddress
    ) -> (input: InputStream, output: OutputStream) {
        let shared = SharedDescriptor(descriptor.rawValue, closesWhenDone: true)
        return streams(of: SocketConnection(shared, peer: peer))
    }

    private static func streams(of connection: SocketConnection) -> (InputStream, OutputStream) {
        (InputStream(backend: SocketInput(connection)), OutputStream(backend: SocketOutput(connection)))
    }

    /// Creates two streams that share a connection to a host, given by name or as a numeric address. A nil pointer receives no
    /// stream. New code has one ``Connection``, and its ``Connection/streams`` where a pair is needed.
    ///
    /// Opening either stream resolves the name and connects, as a ``Connection`` does, and fails with an ``IOError``. Neither
    /// stream delivers an event before both are open, or before a pass of the loop, or a turn of the queue, of the one that is.
    /// Then both deliver ``Event/openCompleted`` before either delivers bytes or space. The connection ends when both streams
    /// are closed; a fault that one stream finds is also a fault of the other, which may read the bytes that arrived before.
    ///
    /// - Precondition: `port` is in 0...65535.
    public class func getStreamsToHost(
        withName hostname: String, port: Int, inputStream: UnsafeMutablePointer<InputStream?>?,
        outputStream: UnsafeMutablePointer<OutputStream?>?
    ) {
        guard let port = UInt16(exactly: port) else {
            fatalError("Stream.getStreamsToHost needs a port in 0...65535, not \(port).")
        }
        let streams = connection(toHost: hostname, port: port)
        unsafe inputStream?.pointee = streams.input
        unsafe outputStream?.pointee = streams.output
    }
}

// MARK: - Typed properties

/// Typed forms of the socket properties. Both halves of a pair share them.
///
/// Bound pairs accept and ignore socket options, so tests can configure them like connections.
extension Stream {
    /// The socket's descriptor; nil before there is one and after it was closed. The stream owns it: do not
    /// close it.
    package var socketDescriptor: FileDescriptor? {
        property(forKey: .socketDescriptorKey) as? FileDescriptor
    }

    /// The socket's own address, from getsockname(2); nil before there is a socket.
    package var localAddress: SocketAddress? { property(forKey: .socketLocalAddressKey) as? SocketAddress }

    /// The peer's address; nil before it is known.
    package var peerAddress: SocketAddress? { property(forKey: .socketRemoteAddressKey) as? SocketAddress }

    /// The process at the other end of a Unix-domain connection, when the connection was made (`SO_PEERCRED`,
    /// unix(7)); nil for others, and before there is one.
    package var peerCredentials: PeerCredentials? {
        property(forKey: .socketPeerCredentialsKey) as? PeerCredentials
    }

    /// How long name resolution, connecting, the proxy's part and the TLS handshake may take together before
    /// opening fails with `Errno.timedOut`. If TLS starts on an open stream: how long its handshake may take.
    ///
    /// 75 seconds by default; nil for a stream that is not a socket's.
    /// - Precondition: Set to a positive duration, on the stream of a socket, before the pair is opened or TLS starts
    ///   on it; or, without effect, of a bound pair.
    package var connectTimeout: Duration? {
        get { property(forKey: .socketConnectTimeoutKey) as? Duration }
        set { setOption(newValue, forKey: .socketConnectTimeoutKey) }
    }

    /// How long the connection may wait for its peer without a byte in either direction before both halves fail with
    /// `Errno.timedOut`.
    ///
    /// Time in which bytes that have come wait for the client, or in which a task that reads does something else, does not
    /// count: see ``Connection/Options/idleTimeout``. Bytes that arrived before are delivered first. Nil, the default, disables
    /// the timeout.
    /// - Precondition: Set to nil or a positive duration, on the stream of a socket or, without effect, of a bound pair.
    package var idleTimeout: Duration? {
        get { property(forKey: .socketIdleTimeoutKey) as? Duration }
        set { setOption(newValue, forKey: .socketIdleTimeoutKey) }
    }

    /// How long the peer may accept none of the bytes that wait for it before both halves fail with
    /// `Errno.timedOut`.
    ///
    /// Nil, the default, disables the timeout.
    /// - Precondition: Set to nil or a positive duration, on the stream of a socket or, without effect, of a bound pair.
    package var writeTimeout: Duration? {
        get { property(forKey: .socketWriteTimeoutKey) as? Duration }
        set { setOption(newValue, forKey: .socketWriteTimeoutKey) }
    }

    private func setOption(_ value: Any?, forKey key: PropertyKey) {
        var unused = SocketOptions()
        require(
            setProperty(value, forKey: key) || isBound && unused.setProperty(value, key),
            "\(key.rawValue) cannot be set to \(value ?? "nil"). The stream must be a socket's or a bound pair's, a timeout "
                + "positive, and a connect timeout set before the stream is opened or TLS starts on it.")
    }

    /// Whether the stream is a half of a bound pair.
    var isBound: Bool {
        let half = engine.backend
        return half is BoundInput || half is BoundOutput
    }
}

extension Stream {
    /// Protects the stream's connection: before it is open if it is not opened yet, else from the next byte
    /// on.
    ///
    /// - Returns: False for another stream than a socket's, and if the connection is closed, has failed, is
    ///   protected, or is to be protected by another security.
    package func protect(by security: any SocketSecurity) -> Bool { setProperty(security, forKey: .security) }
}

// MARK: - Property keys

extension Stream.PropertyKey {
    /// A `Bool`: whether the socket is closed with the second stream. True by default for a connection to a
    /// host.
    package static let shouldCloseNativeSocketKey = Self("kCFStreamPropertyShouldCloseNativeSocket")

    /// A `String`: the host's name, or its address; nil while unknown.
    package static let socketRemoteHostNameKey = Self("kCFStreamPropertySocketRemoteHostName")

    /// An `Int`: the peer's port; nil while unknown.
    package static let socketRemotePortNumberKey = Self("kCFStreamPropertySocketRemotePortNumber")

    /// A `FileDescriptor`: ``Stream/socketDescriptor``.
    package static let socketDescriptorKey = Self("ReactorSocketDescriptor")

    /// A ``SocketAddress``: ``Stream/peerAddress``.
    package static let socketRemoteAddressKey = Self("ReactorSocketRemoteAddress")

    /// A ``SocketAddress``: ``Stream/localAddress``.
    package static let socketLocalAddressKey = Self("ReactorSocketLocalAddress")

    /// A ``PeerCredentials``: ``Stream/peerCredentials``.
    package static let socketPeerCredentialsKey = Self("ReactorSocketPeerCredentials")

    /// A `Duration`: ``Stream/connectTimeout``.
    package static let socketConnectTimeoutKey = Self("ReactorSocketConnectTimeout")

    /// A `Duration`: ``Stream/idleTimeout``.
    package static let socketIdleTimeoutKey = Self("ReactorSocketIdleTimeout")

    /// A `Duration`: ``Stream/writeTimeout``.
    package static let socketWriteTimeoutKey = Self("ReactorSocketWriteTimeout")
}

// Cocoa's keys, which are public in ReactorFoundation.
extension Stream.PropertyKey {
    /// A ``SocketSecurity``, which protects the connection.
    static let security = Self("ReactorSocketSecurity")
    static let securityLevel = Self("kCFStreamPropertySocketSecurityLevel")
    static let securitySettings = Self("kCFStreamPropertySSLSettings")
    static let socksProxy = Self("kCFStreamPropertySOCKSProxy")
    static let serviceType = Self("kCFStreamNetworkServiceType")
}
