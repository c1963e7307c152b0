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
}

extension Connection {
    /// Protects the connection with TLS: before it is open if nothing has opened it yet, else from the next byte on (STARTTLS).
    ///
    /// On an open connection the handshake begins after the bytes that were written before, and is limited by the connect
    /// timeout, from this call. On a client, bytes of the server that have not been read fail the connection with
    /// ``TLSError/Reason/unprotectedBytes``: an attacker may have inserted them. A failed handshake fails the connection.
    ///
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)`` if the settings cannot be used, or the connection is
    ///   closed, has failed, or has TLS, or while a task iterates over its lines, which reads ahead: await
    ///   ``Connection/read(until:limit:timeout:)`` for the lines before it.
    public func startTLS(_ settings: TLSSettings = .client()) throws(TLSError) {
        try streams.input.startTLS(settings)
    }

    /// What the handshake has agreed on; nil before that, and without TLS.
    public var tlsSession: TLSSession? { streams.input.tlsSession }
}
