import Synchronization
public import SystemPackage

/// A stream socket with both its directions: of a client or a server, plain or protected, for delegates and for tasks.
///
/// ```swift
/// let connection = try await Connection.connect(toHost: "example.org", port: 80)
/// try await connection.write("HEAD / HTTP/1.0\r\n\r\n")
/// for try await line in connection.lines() { print(line) }
/// connection.close()
/// ```
///
/// A client makes one, or awaits ``connect(toHost:port:options:security:)``. A server gets one for each client from a
/// ``Listener``. A new connection is not open: the first call of a task opens it, and so does ``open(delegate:forMode:)``.
/// Opening a client's resolves the host's name, tries its addresses a quarter of a second after one another (RFC 8305), and
/// makes the handshakes with a proxy and of TLS; none of this blocks the loop's thread.
///
/// Tasks and threads share a connection. One task reads at a time: a read of another throws ``IOError`` with
/// `Errno.resourceBusy`. Any number may write: each write is whole, and they take turns in the order of their calls. Reading
/// and writing do not wait for one another, so that two tasks can serve both directions. With a delegate no task may use the
/// connection.
///
/// ## Closing
///
/// ``close()`` ends both directions: bytes that were accepted are still sent, for as long as ``Stream/close()`` says.
/// ``finish(timeout:)`` ends the output alone, and bytes are received until the peer ends its own. ``reset()`` discards
/// what was not sent, also what the other two are still sending. Releasing the last reference closes the connection. An
/// iteration still gets the bytes of the peer.
///
/// A connection with a delegate keeps itself and the delegate until it is closed, has failed, or has ended in both
/// directions, or until its loop's thread ends. Then it releases the delegate, so that the two may refer to each other.
///
/// Foundation differs: it has no such type; a pair of streams is what code from Cocoa has (``streams``).
public final class Connection: Sendable {
    /// The streams that move the bytes, and the socket that they share.
    let halves: StreamPair
    let socket: SocketConnection
    let turns = WriteTurns()
    /// Whether the delegate has been told that the peer has ended its direction.
    let peerHasEnded = Atomic(false)
    /// Whether the delegate has tried to take bytes since this was cleared.
    let hasReceived = Atomic(false)
    /// Whether an event for space will come once everything was sent.
    let isSpaceRequested = Atomic(false)
    /// Keeps a message whole that is sent, and the end behind it.
    let sending = Mutex(())
    /// How many bytes ``send(_:)`` may leave for later.
    let writeBufferSize: Int

    /// The streams of a connection.
    ///
    /// `@unchecked Sendable`: a stream has no state but its engine, which is `Sendable`, and these are of no subclass.
    struct StreamPair: @unchecked Sendable {
        let input: InputStream
        let output: OutputStream
    }

    /// A connection to a host, given by name or as a numeric address. Opens nothing yet.
    ///
    /// - Parameters:
    ///   - host: A name or an address.
    ///   - port: The port.
    ///   - options: Options of the socket.
    ///   - security: What protects the bytes, such as ReactorTLS's `.tls()`; nil for plain text.
    public convenience init(
        toHost host: String, port: UInt16, options: Options = Options(), security: Security? = nil
    ) {
        self.init(SocketConnection(connectingTo: .host(host, port: port)), options, security)
    }

    /// A connection to an IPv4, IPv6 or Unix-domain address. Opens nothing yet.
    ///
    /// The parameters are those of ``init(toHost:port:options:security:)``.
    public convenience init(
        to address: SocketAddress, options: Options = Options(), security: Security? = nil
    ) {
        self.init(SocketConnection(connectingTo: .address(address)), options, security)
    }

    /// A connection over a connected stream socket, whose file status flags stay as they are.
    ///
    /// - Parameters:
    ///   - descriptor: A connected socket.
    ///   - closeWhenDone: Whether the end of the connection closes it. True unless set, as for other sockets; a stream over a
    ///     descriptor leaves it open.
    ///   - options: Options of the socket. The connect timeout limits the handshake, if there is one.
    ///   - security: What protects the bytes; nil for plain text.
    /// - Precondition: `descriptor` is not negative.
    public convenience init(
        descriptor: FileDescriptor, closeWhenDone: Bool = true, options: Options = Options(),
        security: Security? = nil
    ) {
        require(
            descriptor.rawValue >= 0,
            "Connection(descriptor:) needs an open descriptor, not \(descriptor.rawValue).")
        let shared = SharedDescriptor(descriptor.rawValue, closesWhenDone: closeWhenDone)
        self.init(SocketConnection(shared), options, security)
    }

    /// An accepted connection.
    convenience init(accepted descriptor: FileDescriptor, from peer: SocketAddress, writeBufferSize: Int) {
        let shared = SharedDescriptor(descriptor.rawValue, closesWhenDone: true)
        self.init(SocketConnection(shared, peer: peer), writeBufferSize)
    }

    private convenience init(_ socket: SocketConnection, _ options: Options, _ security: Security?) {
        self.init(socket, options.writeBufferSize)
        socket.setOptions(options, isAccepted: false)
        _ = protect(by: security)
    }

    private init(_ socket: SocketConnection, _ writeBufferSize: Int) {
        (self.socket, self.writeBufferSize) = (socket, writeBufferSize)
        let (input, output) = socket.makeStreams()
        halves = StreamPair(input: input, output: output)
    }

    /// The two streams of the connection, for code that is written for a pair: it gives each a delegate, schedules and opens
    /// it. They stay usable without the connection, and closing both closes it.
    ///
    /// One thread at a time may use them.
    public var streams: (input: InputStream, output: OutputStream) { (halves.input, halves.output) }

    // MARK: Its state

    /// How far a connection has come.
    @nonexhaustive
    public enum State: Sendable, Hashable {
        /// Nothing has opened or closed it yet.
        case notOpen
        /// The host is being resolved, or a handshake is in progress.
        case opening
        /// Bytes can be moved, at least in one direction.
        case open
        /// It was closed, or both directions have ended: the peer's when the end was read, the own one with
        /// ``Connection/finish(timeout:)``. No bytes can be moved. Accepted ones may still be on their way; if they cannot be
        /// sent, the state becomes ``failed``. After two ends, ``Connection/close()`` or the release of the connection
        /// closes the descriptor; with a delegate the connection does that itself, when the delegate has been told of the end.
        case closed
        /// It has failed or was reset: see ``Connection/error``. Bytes that arrived before may be left to read.
        case failed
    }

    /// How far the connection has come. May be asked on any thread.
    public var state: State {
        if error != nil { return .failed }
        switch (halves.input.streamStatus, halves.output.streamStatus) {
        case (.notOpen, .notOpen): return .notOpen
        case (.closed, .closed), (.closed, .atEnd), (.atEnd, .closed), (.atEnd, .atEnd): return .closed
        case (.opening, _), (_, .opening): return .opening
        default: return .open
        }
    }

    /// Why the connection has failed: an ``IOError``, or ReactorTLS's `TLSError`; nil if it has not.
    public var error: (any Error)? { halves.input.streamError ?? halves.output.streamError }

    /// The socket's own address; nil before there is a socket, and once it is closed.
    public var localAddress: SocketAddress? { socket.localAddress }

    /// The peer's address; nil before it is known. ``SocketAddress/unixUnnamed`` for most Unix-domain peers.
    public var peerAddress: SocketAddress? { socket.peerAddress }

    /// The process at the other end of a Unix-domain connection, when it was made (`SO_PEERCRED`, unix(7)); nil for others.
    public var peerCredentials: PeerCredentials? { socket.peerCredentials }

    /// The socket; nil before there is one, and once it is closed. The connection owns it: do not close it.
    public var descriptor: FileDescriptor? { socket.descriptor }

    /// What dumps, ``LoopDiagnostics`` and errors call the connection, besides its peer; nil for none.
    public var label: String? {
        get { halves.input.label }
        set { (halves.input.label, halves.output.label) = (newValue, newValue) }
    }

    // MARK: Closing

    /// Closes both directions. Bytes that were accepted are still sent. Any thread.
    ///
    /// Tasks that wait get an ``IOError`` with `Errno.badFileDescriptor`, and so do later calls; a delegate gets no further
    /// event. A connection that nothing has opened is closed too: it cannot be opened any more.
    public func close() {
        halves.input.engine.close(evenUnopened: true)
        halves.output.engine.close(evenUnopened: true)
    }

    /// Closes the connection at once: the peer gets a reset instead of the bytes that wait and of an end. Any thread.
    ///
    /// Also after ``close()`` or ``finish(timeout:)``, while bytes are still sent in the background: they are dropped. A peer
    /// that has got all of them, and the end, finds no reset. The connection ends for duplicates of the descriptor too, and
    /// for a descriptor that it does not close. Unix-domain sockets have no reset: the peer gets the bytes that the kernel
    /// has, and the end.
    ///
    /// The connection has failed then, with `Errno.connectionAbort`, unless it was closed and had nothing left to send. Tasks
    /// that wait get that error; a delegate gets no further event.
    public func reset() {
        let wasClosed = halves.input.engine.isClosed && halves.output.engine.isClosed
        let hasReset = socket.reset()
        if hasReset || !wasClosed {
            for engine in [halves.input.engine, halves.output.engine] {
                engine.noteLostBytes(.connectionAbort)
            }
        }
        close()
    }
}

extension Connection: CustomStringConvertible {
    /// The peer, such as `connection to example.org:80`, with the label.
    public var description: String {
        "connection to \(socket.subject)\(label.map { " '\($0)'" } ?? "")"
    }

    /// What each direction waits for that has a delegate, or how far a connection without one has come: for people, so the
    /// wording may change.
    ///
    /// May be called from any thread at any time.
    public func explain() -> String {
        guard halves.output.engine.mayHaveDelegate else {
            let state = state == .notOpen ? "not open" : "\(state)"
            return
                "The \(self) is \(state), and has no delegate: tasks that read or write it wait for the peer."
        }
        return "\(halves.input.explain())\n\(halves.output.explain())"
    }
}

extension Connection: Hashable {
    /// Whether the two are the same connection.
    public static func == (left: Connection, right: Connection) -> Bool { left === right }

    /// Hashes the connection's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

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
