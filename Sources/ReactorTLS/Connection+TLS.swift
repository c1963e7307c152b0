public import Reactor

extension Connection.Security {
    /// TLS: the handshake is part of opening the connection, and a client has checked the server then, as the settings say.
    ///
    /// ```swift
    /// let connection = try await Connection.connect(toHost: "imap.example.org", port: 993, security: .tls())
    /// ```
    ///
    /// - Parameter settings: A client's or a server's.
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)`` if the settings cannot be used.
    public static func tls(_ settings: TLSSettings = .client()) throws(TLSError) -> Connection.Security {
        Connection.Security(try TLSSecurity(settings))
    }

    /// TLS with settings that may change, such as certificates that are renewed.
    ///
    /// ```swift
    /// let security = try Connection.Security.tls(forEachHandshake: { certificates.settings })
    /// try await Listener.run(at: .ipv6Any(port: 443), security: security) { try await serve($0) }
    /// ```
    ///
    /// - Parameter settings: Called now, and at each handshake, then on the one thread of the library that makes all handshakes
    ///   of the process. Return settings that are stored; load certificates elsewhere. What it throws then fails the
    ///   connection.
    /// - Throws: What `settings` throws now; ``TLSError`` if they cannot be used now.
    public static func tls(
        forEachHandshake settings: @escaping @Sendable () throws -> TLSSettings
    ) throws -> Connection.Security {
        Connection.Security(try ChangingSecurity(settings))
    }
}

/// TLS whose settings are asked for at each handshake.
private struct ChangingSecurity: SocketSecurity {
    private let settings: @Sendable () throws -> TLSSettings
    let isServer: Bool

    init(_ settings: @escaping @Sendable () throws -> TLSSettings) throws {
        isServer = try TLSSecurity(settings()).isServer
        self.settings = settings
    }

    func makeSession(toHost host: String?, peer: String) throws -> any SecureSession {
        let security = try TLSSecurity(settings())
        guard security.isServer == isServer else {
            throw TLSError(
                .invalidSettings("a handshake needs the settings of a \(isServer ? "server" : "client")"))
        }
        return try security.makeSession(toHost: host, peer: peer)
    }

    func unprotectedBytes(from peer: String) -> any Error { TLSError(.unprotectedBytes, peer: peer) }
}

extension Connection {
    /// Protects the connection with TLS: before it is open if nothing has opened it yet, else from the next byte on (STARTTLS).
    /// In a task, `startTLS(_:timeout:)` waits for the handshake.
    ///
    /// On an open connection the handshake begins after the bytes that were written before, and is limited by the connect
    /// timeout, from this call. On a client, bytes of the server that have not been read fail the connection with
    /// ``TLSError/Reason/unprotectedBytes``: an attacker may have inserted them. On a server, they are the first of the
    /// handshake, also if ``Connection/read(until:limit:timeout:)`` has received them with the line before. A failed handshake
    /// fails the connection.
    ///
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)`` if the settings cannot be used; with
    ///   ``TLSError/Reason/cannotBegin(_:)`` if the connection is closed, has failed, or has TLS, while a message is being
    ///   written, or while a task iterates over its lines, which reads ahead: await ``Connection/read(until:limit:timeout:)``
    ///   for the lines before it.
    @available(*, noasync, message: "await startTLS(_:timeout:)")
    public func beginTLS(_ settings: TLSSettings = .client()) throws(TLSError) {
        let isDone = try betweenWrites { () throws(TLSError) in try streams.input.beginTLS(settings) }
        if !isDone {
            throw TLSError(.cannotBegin("while a message is being written"))
        }
    }

    /// Protects the connection with TLS, and waits until the handshake has succeeded: a client has then checked the server.
    ///
    /// ```swift
    /// try await connection.write("STARTTLS\r\n")
    /// _ = try await connection.read(until: [13, 10])
    /// try await connection.startTLS()
    /// ```
    ///
    /// The handshake begins after the writes that were called before, and later ones are protected. Opens the connection if
    /// nothing has. Otherwise as ``beginTLS(_:)``.
    ///
    /// - Parameters:
    ///   - settings: A client's or a server's.
    ///   - timeout: How long to wait for the turn and for the handshake; nil for no limit but the connect timeout. After it,
    ///     or if the task is cancelled, a handshake that has begun continues.
    /// - Throws: ``TLSError``: why the handshake has failed, or as ``beginTLS(_:)``. `IOError` for an error of the socket;
    ///   `CancellationError`.
    /// - Precondition: The connection has no delegate.
    nonisolated(nonsending) public func startTLS(
        _ settings: TLSSettings = .client(), timeout: Duration? = nil
    ) async throws {
        let security = try Connection.Security.tls(settings)
        guard try await protect(by: security, timeout: timeout) else {
            throw TLSError(.cannotBegin(streams.input.obstacle))
        }
    }

    /// The result of the handshake; nil before that, and without TLS.
    public var tlsSession: TLSSession? { streams.input.tlsSession }
}
