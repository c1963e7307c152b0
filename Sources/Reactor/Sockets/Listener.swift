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
public final class Listener: EventSource {
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

    /// Why accepting pauses, while it does, and what ends that.
    private var pauseReason: Errno?
    private var timer: Timer?
    private var pause = AcceptPause()
    private var socket: ListeningSocket?
    private var handlers: (fault: (Listener, Errno) -> Void, connection: Handler)?
    private var isDraining = false

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
        let number = socket.descriptor.rawValue
        self.socket = consume socket
        handlers = (faults, handler)
        super.init(number, for: .readable)
    }

    deinit { release() }

    /// The socket that listens, for as long as the listener is not closed.
    package var descriptor: FileDescriptor { FileDescriptor(rawValue: number) }

    /// Why accepting pauses, if it does: `Errno.tooManyOpenFiles`, `Errno.tooManyOpenFilesInSystem`,
    /// `Errno.noMemory`, …
    public var fault: Errno? {
        loop?.assertCurrent()
        return pauseReason
    }

    /// Takes the listener out of its loop for good, closes it, and releases its closures. No callout begins
    /// after this.
    ///
    /// Clients whose connections wait in the backlog are turned away: a server that ends in an orderly way
    /// calls ``drain()``. The file of a Unix-domain path is removed, unless another has taken its place.
    public func close() {
        end()
        release()
    }

    /// Accepts what waits in the backlog, with a callout for each, and then closes the listener.
    ///
    /// That is for a server that ends: no client is turned away that has been let in by the kernel, and has
    /// perhaps sent a request already. The callouts are made, in whatever mode, before this returns; called
    /// inside the listener's own callout, once that returns. As many as the backlog may hold are accepted,
    /// not those that keep coming.
    public func drain() {
        isDraining = true
        end()
    }

    private func release() {
        let dropped = handlers.take()
        socket = nil
        endPause()
        withExtendedLifetime(dropped) {}
    }

    // MARK: Accepting

    /// Accepts what waits, as many connections as a pass may take.
    override func serve(_ readiness: Readiness) {
        accept(Self.connectionsPerPass) { isInRunningMode }
    }

    /// The kernel keeps one connection more than it was told.
    override func ended() {
        if isDraining { accept((socket?.backlog ?? 0) + 1) { true } }
        release()
    }

    /// Accepts up to `most` connections, as long as `goesOn` says so after each.
    private func accept(_ most: Int, while goesOn: () -> Bool) {
        for _ in 0..<most {
            switch socket?.accept() {
            case .connection(let descriptor, let peer):
                pause.reset()
                let (input, output) = Stream.socketPair(descriptor: descriptor, closeWhenDone: true)
                handlers?.connection(self, Connection(input: input, output: output, peer: peer))
                guard goesOn() else { return }
            case .lost: continue
            case .fault(let error): return pauseAccepting(for: error)
            case nil, .some(.none): return
            }
        }
    }

    // MARK: Pausing

    /// Has nothing accepted for a while: the connection stays in the backlog, and so the socket readable.
    private func pauseAccepting(for error: Errno) {
        pauseReason = error
        if let loop, !isDraining {
            try? setInterest([])
            let modes = Array(membership.registrationModes(common: loop.commonModes).members)
            timer = loop.perform(after: pause.next(), inModes: modes) { [weak self] in self?.resume() }
        }
        if pause.tells(at: .now) { handlers?.fault(self, error) }
    }

    private func resume() {
        endPause()
        // Without memory for the registration, this is tried again like the rest.
        do throws(Errno) { try setInterest(.readable) } catch { pauseAccepting(for: error) }
    }

    private func endPause() {
        pauseReason = nil
        timer?.invalidate()
        timer = nil
    }

    override func joined(_ mode: RunLoop.Mode) {
        if let timer { loop?.add(timer, forMode: mode) }
    }

    override func left(_ mode: RunLoop.Mode) {
        if let loop {
            if let timer { loop.remove(timer, forMode: mode) }
        } else if pauseReason != nil {
            resume()
        }
    }
}
