import Glibc
public import SystemPackage

/// A UDP or Unix-domain datagram socket, whose datagrams are handed to a closure on a run loop's thread.
///
/// ```swift
/// let server = try DatagramSocket(boundTo: .ipv6Any(port: 7)) { socket, bytes, datagram in
///     guard let sender = datagram.sender else { return }
///     _ = try? socket.send(bytes, to: sender)
/// }
/// try RunLoop.current.add(server, forMode: .default)
/// ```
///
/// In a pass of the loop up to sixteen datagrams are read with one system call, into memory that is used again,
/// and delivered one by one, as borrowed bytes. The closure is not called again within its own callout, however
/// deep the loop nests; those behind it wait. It may close the socket: no callout begins after that, and what
/// has been read is dropped. Taken out of a mode meanwhile, the socket delivers them when it is in one that runs.
///
/// The closures may capture what they like: they are called and destroyed on the loop's thread. A socket that is
/// in a loop lives until it is closed, whether anybody holds it or not; one that is in none is closed with its
/// last owner. When the loop's thread ends, its sockets are closed. A socket and its loop belong to one thread;
/// every method traps on another.
///
/// It stands on udp(7), unix(7) and recvmmsg(2). SIGPIPE is never raised.
public final class DatagramSocket: EventSource {
    /// What a datagram comes with.
    public struct Datagram: Sendable, Hashable {
        /// Who sent it; nil for a Unix-domain socket without a name.
        public let sender: SocketAddress?
        /// How many bytes it had, of which ``Options/datagramLimit`` have been kept.
        public let byteCount: Int
        /// Whether it had more bytes than were kept.
        public let isTruncated: Bool
    }

    /// What happens besides datagrams.
    public enum Event: Sendable, Hashable {
        /// There is room again after a ``DatagramSocket/send(_:to:)`` that found none.
        case hasSpaceAvailable
        /// The kernel has told of an error, such as `Errno.connectionRefused` when nobody is where the socket is
        /// connected to. The socket goes on.
        case errorOccurred(Errno)
    }

    /// Receives a datagram's bytes, borrowed until it returns.
    public typealias Receiver = (DatagramSocket, RawSpan, Datagram) -> Void

    private struct Handlers {
        let event: (DatagramSocket, Event) -> Void
        let receive: Receiver
    }

    let family: SocketAddress.Family
    private let datagramLimit: Int
    /// Nil once the socket is closed.
    private var handlers: Handlers?
    private var batch: DatagramBatch?
    /// Whether a send has found no room.
    private var wantsSpace = false
    /// Set when the socket leaves a mode: what has been read and not delivered stays for the next one.
    private var isInterrupted = false
    private var boundPath: BoundPath?

    /// Makes a socket that receives what is sent to `address`.
    ///
    /// - Parameters:
    ///   - address: With port zero the kernel chooses one; ``localAddress`` tells. The file that a Unix-domain
    ///     path makes is removed when the socket is closed, but if it is in the way it is the caller's to remove.
    ///   - options: What to set before.
    ///   - events: Called when there is room again, and for errors that no call is to blame for.
    ///   - receive: Called for each datagram.
    /// - Throws: What socket(2), setsockopt(2) and bind(2) do: `Errno.addressInUse`,
    ///   `Errno.addressNotAvailable`, `Errno.permissionDenied`, …
    public convenience init(
        boundTo address: SocketAddress, options: Options = Options(),
        events: @escaping (DatagramSocket, Event) -> Void = { _, _ in }, receive: @escaping Receiver
    ) throws(Errno) {
        try self.init(.datagramSocket(address.family), options, Handlers(event: events, receive: receive))
        try bind(to: address)
    }

    /// Makes a socket that sends to `peer`, and receives from nobody else.
    ///
    /// - Parameters:
    ///   - peer: Where ``send(_:)`` sends to.
    ///   - address: Where the socket itself is; nil to have the kernel choose. A Unix-domain socket that nothing
    ///     is chosen for has no name, and so gets no answers; ``SocketAddress/unixUnnamed`` has one chosen.
    ///   - options: What to set before.
    ///   - events: Called when there is room again, and for errors that no call is to blame for.
    ///   - receive: Called for each datagram.
    /// - Throws: What socket(2), setsockopt(2), bind(2) and connect(2) do: `Errno.networkUnreachable`,
    ///   `Errno.connectionRefused` (Unix-domain), `Errno.noSuchFileOrDirectory`, …
    public convenience init(
        connectedTo peer: SocketAddress, boundTo address: SocketAddress? = nil, options: Options = Options(),
        events: @escaping (DatagramSocket, Event) -> Void = { _, _ in }, receive: @escaping Receiver
    ) throws(Errno) {
        try self.init(.datagramSocket(peer.family), options, Handlers(event: events, receive: receive))
        if let address { try bind(to: address) }
        try FileDescriptor(rawValue: number).connect(to: peer)
    }

    /// Takes over a datagram socket that exists: one of a pair, or one that was inherited.
    ///
    /// - Parameters:
    ///   - descriptor: Belongs to this from now on: it is closed even if this fails. It may be a blocking
    ///     one.
    ///   - options: What to set.
    ///   - events: Called when there is room again, and for errors that no call is to blame for.
    ///   - receive: Called for each datagram.
    /// - Throws: `Errno.notSocket`, `Errno.badFileDescriptor`, or `Errno.protocolWrongTypeForSocket` for a socket
    ///   of another kind.
    public convenience init(
        descriptor: FileDescriptor, options: Options = Options(),
        events: @escaping (DatagramSocket, Event) -> Void = { _, _ in }, receive: @escaping Receiver
    ) throws(Errno) {
        try self.init(descriptor, options, Handlers(event: events, receive: receive))
    }

    /// Takes `descriptor` over, and closes it if this fails.
    private init(_ descriptor: FileDescriptor, _ options: Options, _ handlers: Handlers) throws(Errno) {
        precondition(options.datagramLimit > 0, "a datagram socket needs room for at least one byte")
        datagramLimit = options.datagramLimit
        do throws(Errno) {
            family = try SocketAddress.local(of: descriptor).family
            try descriptor.prepareForDatagrams(options, family)
            try SystemCall.make { fcntl(descriptor.rawValue, F_SETFD, FD_CLOEXEC) }
        } catch {
            _ = Glibc.close(descriptor.rawValue)
            throw error
        }
        self.handlers = handlers
        super.init(descriptor.rawValue, for: .readable)
    }

    deinit { release() }

    private func bind(to address: SocketAddress) throws(Errno) {
        try FileDescriptor(rawValue: number).bind(to: address)
        boundPath = address.unixPath.flatMap { BoundPath($0) }
    }

    // MARK: Its state

    /// The descriptor, for what this has no name for. It stays the socket's: do not close it.
    ///
    /// - Throws: `Errno.badFileDescriptor` once the socket is closed.
    public var descriptor: FileDescriptor { get throws(Errno) { try openDescriptor } }

    /// Where the socket is, as the kernel has completed it; getsockname(2).
    ///
    /// - Throws: `Errno.badFileDescriptor` once the socket is closed.
    public var localAddress: SocketAddress {
        get throws(Errno) { try SocketAddress.local(of: openDescriptor) }
    }

    /// Where the socket is connected to; getpeername(2).
    ///
    /// - Throws: `Errno.socketNotConnected`; `Errno.badFileDescriptor` once the socket is closed.
    public var peerAddress: SocketAddress {
        get throws(Errno) { try SocketAddress.peer(of: openDescriptor) }
    }

    /// Takes the socket out of its loop for good, closes it, and releases its closures. No callout begins after
    /// this. The file of a Unix-domain path that it was bound to is removed.
    public func close() {
        end()
        release()
    }

    var openDescriptor: FileDescriptor {
        get throws(Errno) {
            loop?.assertCurrent()
            guard handlers != nil else { throw .badFileDescriptor }
            return FileDescriptor(rawValue: number)
        }
    }

    private func release() {
        guard let dropped = handlers.take() else { return }
        _ = Glibc.close(number)
        boundPath?.remove()
        withExtendedLifetime(dropped) {}
    }

    // MARK: On the loop's thread

    /// Makes room for what will be received.
    override func prepareToJoin() throws(Errno) {
        if batch == nil { batch = try DatagramBatch(datagramLimit: datagramLimit) }
    }

    override func left(_ mode: RunLoop.Mode) { isInterrupted = true }

    override func ended() { release() }

    override func serve(_ readiness: Readiness) {
        isHandled = deliver(readiness)
        guard isValid else { return }
        // If the kernel has no memory for it, this is tried again after the next callout.
        try? updateInterest()
        if let batch, !batch.isEmpty { raise() }
    }

    /// Delivers what has come in, and tells of room. Returns whether a handler was called.
    private func deliver(_ readiness: Readiness) -> Bool {
        guard let batch, let handlers else { return false }
        isInterrupted = false
        var isHandled = false
        do throws(Errno) {
            if batch.isEmpty, readiness.contains(.readable) {
                _ = try batch.receive(from: FileDescriptor(rawValue: number))
            }
        } catch {
            isHandled = true
            handlers.event(self, .errorOccurred(error))
        }
        while isValid, !isInterrupted, !batch.isEmpty {
            isHandled = true
            batch.takeNext { bytes, datagram in handlers.receive(self, bytes, datagram) }
        }
        if isValid, !isInterrupted, wantsSpace, readiness.contains(.writable) {
            isHandled = true
            wantsSpace = false
            handlers.event(self, .hasSpaceAvailable)
        }
        return isHandled
    }

    /// Has the kernel tell of datagrams, and of room after a send has found none.
    private func updateInterest() throws(Errno) {
        try setInterest(wantsSpace ? [.readable, .writable] : .readable)
    }

    /// Has ``Event/hasSpaceAvailable`` delivered when there is room.
    func awaitSpace() throws(Errno) {
        wantsSpace = true
        try updateInterest()
    }
}
