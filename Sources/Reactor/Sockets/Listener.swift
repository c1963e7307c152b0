public import SystemPackage

/// Accepts connections on a run loop's thread, and hands each over as a pair of streams.
///
/// ```swift
/// let listener = try Listener(.ipv6Any(port: 7)) { _, connection in
///     sessions.insert(Session(connection.input, connection.output))
/// }
/// try RunLoop.current.add(listener, forMode: .common)
/// print("listening on \(listener.localAddress)")
/// ```
///
/// Any stream socket will do: TCP over IPv4 or IPv6, Unix-domain by path or by abstract name, and one that
/// was inherited. It listens from when it is made, and accepts while the loop that it was added to runs in
/// one of its modes: up to ``connectionsPerPass`` in a pass, so that others get their turn. Those that it
/// does not accept yet wait in the kernel's backlog: take the listener out of its modes to have a server
/// catch its breath.
///
/// The closure is not called again within its own callout, however deep the loop nests. It may close the
/// listener. It may capture what it likes: it is called and destroyed on the loop's thread. A listener that
/// is in a loop lives until it is closed, whether anybody holds it or not; one that is in none is closed with
/// its last owner. When the loop's thread ends, its listeners are closed. A listener and its loop belong to
/// one thread; every method traps on another.
///
/// A connection that is gone before it could be accepted is passed over. When the process has no descriptor
/// left for one, or the kernel no memory, accepting pauses, for 10 ms at first and never more than 0.32 s:
/// nobody is turned away, and nothing spins.
///
/// To serve one port on several threads, give each its own listener, with ``Options/reusesPort``.
///
/// It stands on socket(7), accept4(2), tcp(7) and unix(7).
public final class Listener {
    /// A connection that has been accepted.
    public struct Connection {
        /// What the peer sends. Neither opened nor scheduled yet.
        public let input: InputStream
        /// What the peer gets. Neither opened nor scheduled yet. The connection is closed with the second of
        /// the two.
        public let output: OutputStream
        /// Who it is from; ``SocketAddress/unixUnnamed`` for most Unix-domain peers.
        public let peer: SocketAddress
    }

    /// Receives a connection. One whose streams are let go of is closed.
    public typealias Handler = (Listener, Connection) -> Void

    /// The most connections that are accepted in one pass of the loop: with streams opened for each, about
    /// half a millisecond's work.
    public static let connectionsPerPass = 32

    /// Where the listener is, as the kernel has completed it: with the port that it chose.
    public let localAddress: SocketAddress

    let source: DescriptorSource
    /// Nil once the source has been cancelled: by this, or by the loop's end.
    private(set) weak var acceptor: Acceptor?

    /// Listens at `address`.
    ///
    /// - Parameters:
    ///   - address: With port zero the kernel chooses one. A Unix-domain path is made, in place of one that a
    ///     server has left behind, and removed when the listener is closed.
    ///   - options: What to set before.
    ///   - faults: Called when accepting has to pause, with the reason, at most once a second.
    ///   - handler: Called for each connection.
    /// - Throws: What socket(2), setsockopt(2), bind(2) and listen(2) do: `Errno.addressInUse` if somebody
    ///   listens there, or the path is no socket's; `Errno.addressNotAvailable`, `Errno.permissionDenied`, …
    public convenience init(
        _ address: SocketAddress, options: Options = Options(),
        faults: @escaping (Listener, Errno) -> Void = { _, _ in }, handler: @escaping Handler
    ) throws(Errno) {
        try self.init(ListeningSocket(address, options), faults, handler)
    }

    /// Takes over a socket that listens already: one that was inherited, as with socket activation
    /// (sd_listen_fds(3)).
    ///
    /// - Parameters:
    ///   - descriptor: Belongs to this from now on: it is closed even if this fails. It is made non-blocking.
    ///     Its options, which accepted connections inherit, stay as they are, and so does the file of a
    ///     Unix-domain path.
    ///   - faults: Called when accepting has to pause, with the reason, at most once a second.
    ///   - handler: Called for each connection.
    /// - Throws: `Errno.notSocket`, `Errno.badFileDescriptor`, or `Errno.invalidArgument` for a socket that
    ///   does not listen.
    public convenience init(
        descriptor: FileDescriptor,
        faults: @escaping (Listener, Errno) -> Void = { _, _ in }, handler: @escaping Handler
    ) throws(Errno) {
        try self.init(ListeningSocket(descriptor), faults, handler)
    }

    private init(
        _ socket: consuming ListeningSocket, _ faults: @escaping (Listener, Errno) -> Void,
        _ handler: @escaping Handler
    ) throws(Errno) {
        localAddress = try socket.localAddress
        let descriptor = socket.descriptor
        let acceptor = Acceptor(socket, faults, handler)
        self.acceptor = acceptor
        source = DescriptorSource(descriptor, for: .readable) { source, _ in acceptor.serve(source) }
    }

    /// The socket that listens, for as long as the listener is not closed.
    package var descriptor: FileDescriptor { source.descriptor }

    /// Whether the listener has not been closed.
    public var isValid: Bool { source.isValid }

    /// Why accepting pauses, if it does: `Errno.tooManyOpenFiles`, `Errno.tooManyOpenFilesInSystem`,
    /// `Errno.noMemory`, …
    public var fault: Errno? {
        source.loop?.assertCurrent()
        return acceptor?.fault
    }

    /// Takes the listener out of its loop for good, closes it, and lets go of its closures. No callout begins
    /// after this.
    ///
    /// Clients whose connections wait in the backlog are turned away: a server that ends in an orderly way
    /// calls ``drain()``. The file of a Unix-domain path is removed, unless another has taken its place.
    public func close() {
        let acceptor = acceptor
        source.cancel()
        acceptor?.close()
    }

    /// Accepts what waits in the backlog, with a callout for each, and then closes the listener.
    ///
    /// That is for a server that ends: nobody is turned away who has been let in by the kernel, and has
    /// perhaps sent a request already. The callouts are made, in whatever mode, before this returns; called
    /// inside the listener's own callout, once that returns. As many as the backlog may hold are accepted,
    /// not those that keep coming.
    public func drain() {
        let acceptor = acceptor
        source.cancel()
        acceptor?.drain(self)
    }
}
