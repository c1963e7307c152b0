package import SystemPackage

/// Protects the bytes of a connection, as TLS does: turns clear bytes into the socket's, and back.
///
/// Its connection makes one call at a time, on any thread. No call waits for the socket. A session that has
/// failed throws an error from then on.
package protocol SecureSession: AnyObject {
    /// Takes bytes of the handshake that were received before it. Called first.
    func take(_ received: [UInt8])
    /// Continues the handshake.
    ///
    /// - Returns: Whether it is complete; if not, it continues when the socket has more bytes.
    func continueHandshake(over wire: SocketWire) throws -> Bool
    /// Receives as many clear bytes as there are and fit: 0 at the end that the peer has announced, nil if
    /// there are none yet.
    func receive(into buffer: inout MutableRawSpan, over wire: SocketWire) throws -> Int?
    /// Whether ``receive(into:over:)`` would not return nil: there are clear bytes, the end or a failure.
    ///
    /// - Parameter receives: Whether to receive from the socket, or to look only at what was received before.
    func canReceive(over wire: SocketWire, receives: Bool) -> Bool
    /// Sends all of `bytes`, or keeps them until it may: see ``SocketWire/setHolding(_:)``.
    func send(_ bytes: RawSpan, over wire: SocketWire) throws
    /// Sends the bytes that it keeps, if it may by now. Receives no clear bytes.
    ///
    /// - Returns: Whether it keeps none.
    func sendHeld(over wire: SocketWire) throws -> Bool
    /// Announces the end of the output to the peer. Throws if bytes that it keeps are lost.
    func end(over wire: SocketWire) throws
    /// The value of a property that the session has by itself.
    func property(_ key: Stream.PropertyKey) -> (any Sendable)?
}

/// Creates the sessions of connections.
package protocol SocketSecurity: Sendable {
    /// Whether the peer begins the handshake.
    var isServer: Bool { get }
    /// The error of a connection whose peer has sent bytes before the handshake that the client has not read.
    func unprotectedBytes(from peer: String) -> any Error
    /// Creates a session, on the thread that performs the handshake.
    ///
    /// - Parameters:
    ///   - host: The host's name or address; nil for an existing socket.
    ///   - peer: The peer, as errors name it.
    func makeSession(toHost host: String?, peer: String) throws -> any SecureSession
}

/// Makes securities of Cocoa's properties. ReactorTLS implements it, in a program that links that, and declares the
/// conformance of ``SocketSecurities``.
package protocol SocketSecurityBridge {
    /// The requirements of a level.
    ///
    /// - Parameter former: What the settings have required before, which the level does not change otherwise.
    static func security(level: String, _ former: (any SocketSecurity)?) throws -> any SocketSecurity
    /// The requirements of a dictionary of settings.
    static func security(settings: [AnyHashable: Any]) throws -> any SocketSecurity
}

/// Finds the ``SocketSecurityBridge`` at run time, so nothing has to be registered first.
package enum SocketSecurities {
    static var bridge: (any SocketSecurityBridge.Type)? {
        SocketSecurities.self as? any SocketSecurityBridge.Type
    }
}

/// The socket below a session.
package struct SocketWire: Sendable {
    let connection: SocketConnection
    /// Queues what the socket has no room for.
    let buffer: WriteBuffer?

    /// Receives bytes: 0 at the end, nil if there are none.
    package func receive(into buffer: inout MutableRawSpan) throws(Errno) -> Int? {
        let count = try connection.shared.receive(into: &buffer)
        connection.noteReceived(ofSocket: count ?? 0)
        return count
    }

    /// Notes whether the session keeps bytes that it has accepted: a flush waits for them, and the session is asked to send
    /// them, though the client may not read.
    package func setHolding(_ isHolding: Bool) throws(Errno) {
        try buffer?.setHolding(isHolding)
        guard isHolding else { return }
        connection.noteSent(0, isBlocked: true)
        try connection.sendHeldLater()
    }

    /// Sends all of `bytes`, or queues what the socket has no room for.
    package func send(_ bytes: RawSpan) throws(Errno) {
        guard let buffer else { throw .brokenPipe }
        var sent = 0
        if buffer.isEmpty {
            sent = try connection.send(bytes)
            connection.noteSent(sent, isBlocked: sent < bytes.byteCount)
        }
        guard sent < bytes.byteCount else { return }
        try buffer.acceptReply(bytes.extracting(droppingFirst: sent), for: connection.shared)
    }
}
