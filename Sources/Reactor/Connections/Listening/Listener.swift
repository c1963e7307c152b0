public import SystemPackage

/// Accepts connections on a run loop's thread.
///
/// ```swift
/// let listener = try Listener(.ipv6Any(port: 7)) { _, connection in
///     connection.open(delegate: Echo())
/// } acceptErrors: { _, error in
///     print(error)  // accept at [::]:7: Too many open files
/// }
/// try RunLoop.current.add(listener, forMode: .common)
/// print("listening on \(listener.localAddress)")
/// ```
///
/// Any stream socket works: TCP over IPv4 or IPv6, Unix-domain with a path or an abstract name, or an inherited one. The
/// socket listens as soon as the listener is created. Connections are accepted while the loop runs in one of the listener's
/// modes, a bounded number in each pass, so that other items get their turn. The others wait in the kernel's backlog: to stop
/// accepting for a while, remove the listener from its modes.
///
/// The handler is called and released on the loop's thread, and may capture anything. It may close the listener. It is never
/// called inside itself, even if the loop runs nested. The loop keeps the listener alive until it is closed. A listener in no
/// loop is closed when the last reference to it is released, and the end of a loop's thread closes the listeners in that loop.
/// A listener and its loop belong to one thread; while it is in a loop, every method traps on another.
///
/// A pending connection that is lost before it is accepted is skipped. When the process has no descriptor left, or the kernel
/// no memory, the listener backs off for 10 ms, and for up to 320 ms if that lasts. Clients stay in the backlog. Connections
/// leave the last four descriptors to the rest of the process; if the descriptor limit (`RLIMIT_NOFILE`) is lowered while the
/// process runs, up to 32 connections may take them first.
///
/// In a task, use ``RunLoop/connections(at:options:inModes:acceptErrors:)``. To serve one port on several threads, create a
/// listener for each with ``Options/reusesPort``.
///
/// See socket(7), accept4(2), tcp(7) and unix(7).
public final class Listener: EventSource {
    /// The limit of connections that one pass accepts: about half a millisecond's work if streams are opened for each.
    package static let connectionsPerPass = 32

    private let acceptor: Acceptor
    /// Protects a connection, if the listener has a security. Returns false for one that is closed or has failed.
    private let protect: ((Connection) -> Bool)?
    private var handlers:
        (connection: (Listener, Connection) -> Void, acceptError: ((Listener, IOError) -> Void)?)?
    /// The reason for the last back-off.
    private var backoffReason: IOError?
    /// Whether the listener closes once its backlog is empty.
    private var isDraining = false

    /// Listens at `address`.
    ///
    /// - Parameters:
    ///   - address: The kernel chooses the port if it is 0. A Unix-domain path is created, in place of one that a server has
    ///     left behind, and removed when the listener is closed, as ``removesFile`` says.
    ///   - options: Options to set before listening.
    ///   - security: What protects the bytes, such as ReactorTLS's `.tls(.server(identity))`; nil for plain text. Opening a
    ///     connection makes the handshake.
    ///   - handler: Called for each connection, which nothing has opened yet. Releasing it closes it.
    ///   - acceptErrors: Called with the reason when the listener backs off, at most once a second; nil to back off silently.
    /// - Throws: ``IOError`` with an error of socket(2), setsockopt(2), bind(2) or listen(2): `Errno.addressInUse` if a server
    ///   listens there or the path is not a socket's, `Errno.addressNotAvailable`, `Errno.permissionDenied`, …
    /// - Precondition: `security` is a server's.
    public convenience init(
        _ address: SocketAddress, options: Options = Options(), security: Connection.Security? = nil,
        handler: @escaping (Listener, Connection) -> Void,
        acceptErrors: ((Listener, IOError) -> Void)? = nil
    ) throws(IOError) {
        self.init(try Acceptor(address, options), security, handler, acceptErrors)
    }

    /// Takes ownership of a socket that listens already, such as one inherited by socket activation (sd_listen_fds(3)).
    ///
    /// - Parameters:
    ///   - descriptor: The socket, which is closed even if this fails. It becomes non-blocking. Its options stay as
    ///     they are, and so does the file of a Unix-domain path.
    ///   - options: The options of accepted connections, which are set for each.
    ///   - security: As in ``init(_:options:security:handler:acceptErrors:)``.
    ///   - handler: Called for each connection, which nothing has opened yet. Releasing it closes it.
    ///   - acceptErrors: Called with the reason when the listener backs off, at most once a second; nil to back off silently.
    /// - Throws: ``IOError`` with `Errno.notSocket`, `Errno.badFileDescriptor`, or `Errno.invalidArgument` for a socket that
    ///   does not listen.
    /// - Precondition: `security` is a server's.
    public convenience init(
        descriptor: FileDescriptor, connectionOptions options: Connection.Options = Connection.Options(),
        security: Connection.Security? = nil, handler: @escaping (Listener, Connection) -> Void,
        acceptErrors: ((Listener, IOError) -> Void)? = nil
    ) throws(IOError) {
        self.init(try Acceptor(descriptor, options), security, handler, acceptErrors)
    }

    private init(
        _ acceptor: Acceptor, _ security: Connection.Security?,
        _ handler: @escaping (Listener, Connection) -> Void,
        _ acceptErrors: ((Listener, IOError) -> Void)?
    ) {
        security?.requireServer("Listener")
        self.acceptor = acceptor
        protect = security.map { security in { $0.protect(by: security) } }
        handlers = (handler, acceptErrors)
        super.init(acceptor.number, for: .readable)
    }

    deinit { releaseResources() }

    // MARK: Its state

    /// The listener's address, as completed by the kernel: with the port that it has chosen.
    public var localAddress: SocketAddress { acceptor.localAddress }

    /// The listening socket, to set an option, or to pass it on, as to a new version of the program
    /// (``ChildProcess/Configuration/sockets``, ``removesFile``). It belongs to the listener: nil once that is closed.
    public var descriptor: FileDescriptor? { acceptor.descriptor }

    /// Whether the file of a Unix-domain path is removed when the listener is closed or drained: true unless it is set. Set it
    /// to false before that if the socket has been passed on to another program, which continues to listen there. A server
    /// that finds a file without a listener replaces it.
    ///
    /// False without such a file, for a socket that the listener has not made, and once the listener is closed.
    public var removesFile: Bool {
        get { acceptor.removesFile }
        set { acceptor.removesFile = newValue }
    }

    /// Why the listener backs off; nil while it accepts. `Errno.tooManyOpenFiles`, `Errno.tooManyOpenFilesInSystem`,
    /// `Errno.noMemory`, …
    public var acceptError: IOError? {
        requireLoopThread()
        return isPaused ? backoffReason : nil
    }

    /// Removes the listener from its loop, closes it, and releases its handlers. No handler is called after this.
    ///
    /// Clients in the backlog are disconnected; ``drain()`` accepts them first. The file of a Unix-domain path is removed,
    /// unless another one has replaced it, or ``removesFile`` is false.
    public func close() { cancel() }

    /// Accepts the connections in the backlog, calling the handler for each, and then closes the listener.
    ///
    /// No client that the kernel has accepted, and that may have sent a request, is disconnected. The handler is called,
    /// whatever the mode, before this returns; or, if this is called by the handler, after that returns. At most as many
    /// connections are accepted as the backlog can hold.
    ///
    /// If accepting fails, the listener backs off and continues in its modes; in no loop, it closes with what is left.
    public func drain() {
        requireLoopThread()
        acceptor.drain()
        isDraining = true
        if !isInCallback { _ = serveRecorded(.marked, reportedAt: .unknown) }
    }

    override func releaseResources() {
        let dropped = handlers.take()
        acceptor.close()
        withExtendedLifetime(dropped) {}
    }

    // MARK: On the loop's thread

    override var subject: String { "\(localAddress)" }

    override var noun: String { "listener at \(subject)" }

    override var summary: String { "\(noun)\(isValid ? "" : " (closed)")" }

    override var silence: String {
        acceptError.map { "it tries again after a pause, because of \($0)" } ?? "no client is connecting"
    }

    override func serve(_ readiness: Readiness) -> Bool {
        accept()
        return true
    }

    private func accept() {
        for count in 1... {
            switch acceptor.next() {
            case .connection(let descriptor, let peer):
                let connection = acceptor.connection(descriptor, from: peer)
                if protect?(connection) ?? true { handlers?.connection(self, connection) }
            case .fault(let fault): return backOff(fault)
            case .over: return close()
            case nil: return
            }
            guard isDraining || count < Self.connectionsPerPass && isInRunningMode else { return }
        }
    }

    /// Accepts nothing for a while. The socket stays readable, so it is not watched meanwhile.
    private func backOff(_ fault: Acceptor.Fault) {
        let error = IOError(.accept, subject, fault.error, label: label)
        backoffReason = error
        pause(for: fault.delay)
        if fault.isReported {
            LoopDiagnostics.report(acceptError: "\(error)")
            handlers?.acceptError?(self, error)
        }
        // Nothing would make it try again.
        if isDraining, loop == nil { close() }
    }
}

extension Listener {
    /// The options of a listener's socket.
    public struct Options: Sendable, Hashable {
        /// The limit of pending connections; listen(2). The kernel caps it at `net.core.somaxconn`.
        public var backlog: Int
        /// Whether the address may be bound while connections of an earlier server are in TIME_WAIT (`SO_REUSEADDR`), so that
        /// a server can restart at once. IP only.
        public var reusesAddress: Bool
        /// Whether other listeners of the same user that also set this may listen at the same address and port; the kernel
        /// distributes the connections among them (`SO_REUSEPORT`).
        public var reusesPort: Bool
        /// Whether an IPv6 listener rejects connections over IPv4 (`IPV6_V6ONLY`). If false, a listener at
        /// ``SocketAddress/ipv6Any(port:)`` accepts both, whatever the system's default is.
        public var isIPv6Only: Bool
        /// The options of accepted connections.
        public var connection: Connection.Options
        /// The permissions of a Unix-domain path: connecting requires permission to write. Nil for what the process's umask(2)
        /// leaves.
        public var permissions: FilePermissions?

        /// The backlog as listen(2) takes it.
        var listenBacklog: CInt { CInt(clamping: max(backlog, 0)) }

        /// Creates options.
        public init(
            backlog: Int = 4096, reusesAddress: Bool = true, reusesPort: Bool = false,
            isIPv6Only: Bool = false, connection: Connection.Options = Connection.Options(),
            permissions: FilePermissions? = nil
        ) {
            self.backlog = backlog
            self.reusesAddress = reusesAddress
            self.reusesPort = reusesPort
            self.isIPv6Only = isIPv6Only
            self.connection = connection
            self.permissions = permissions
        }
    }
}
