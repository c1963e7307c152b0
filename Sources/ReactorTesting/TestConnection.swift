import CReactorLinux
import Glibc
public import Reactor
import SystemPackage

/// One end of an in-process connection. The test can delay, split, stall or cut off its bytes.
///
/// ```swift
/// let (client, server) = try TestConnection.pair()
/// server.latency = .milliseconds(40)
/// server.chunkSizes = 1...7
/// let session = Session(client.connection)
/// ```
///
/// ``connection`` is an ordinary connection that is not open yet, and ``input`` and ``output`` are its streams. What one end
/// writes arrives at the other through a relay, which the properties and methods of the end that has sent it control. In
/// virtual time (`withVirtualTime`) latency takes no real time.
///
/// A connection is used on the thread that makes it, whose loop relays the bytes in the common modes: a blocking read or
/// write, which keeps the loop from running, may never return. It lasts until both ends are closed or released. The sockets
/// are Unix-domain sockets: they have no addresses, and descriptors and parts of files do not pass.
public final class TestConnection {
    /// This end, for code that is written for a `Connection`.
    public let connection: Connection
    /// Reads what the other end has written.
    public var input: InputStream { connection.streams.input }
    /// Writes to the other end.
    public var output: OutputStream { connection.streams.output }
    private let relay: Relay

    private init(_ socket: CInt, sendingThrough relay: Relay) {
        connection = Connection(descriptor: FileDescriptor(rawValue: socket))
        self.relay = relay
    }

    /// Creates the two ends of a connection on the calling thread's loop.
    ///
    /// - Parameter seed: Determines the sizes of chunks; see ``chunkSizes``. Nil for that of `withVirtualTime`, or zero.
    /// - Throws: `IOError` with an error of socketpair(2): `Errno.tooManyOpenFiles`.
    public static func pair(seed: UInt64? = nil) throws(IOError) -> (TestConnection, TestConnection) {
        try attempt(.create, "a test connection") { () throws(Errno) in try makePair(seed) }
    }

    private static func makePair(_ seed: UInt64?) throws(Errno) -> (TestConnection, TestConnection) {
        let first = try SocketPair()
        let second: SocketPair
        do throws(Errno) { second = try SocketPair() } catch {
            first.closeTestedEnd()
            throw error
        }
        let seed = seed ?? (currentTimeSource as? TimeDomain)?.seed ?? 0
        let relays = Relay.both(first, second) { SeededGenerator(seed: seed &+ $0) }
        do throws(Errno) {
            for relay in relays { try relay.begin() }
        } catch {
            for pair in [first, second] { pair.closeTestedEnd() }
            throw error
        }
        return (
            TestConnection(first.testedEnd, sendingThrough: relays[0]),
            TestConnection(second.testedEnd, sendingThrough: relays[1])
        )
    }

    // MARK: What this end sends

    /// The delay between a write and the arrival of its bytes at the other end. Default zero.
    public var latency: Duration {
        get { relay.latency.lowerBound }
        set { relay.latency = newValue...newValue }
    }

    /// The sizes of the chunks in which bytes arrive at the other end, chosen at random; nil passes bytes on as
    /// they come. In virtual time, an end that reads as soon as bytes arrive reads each chunk by itself.
    ///
    /// - Precondition: The sizes are positive.
    public var chunkSizes: ClosedRange<Int>? {
        get { relay.chunkSizes }
        set {
            precondition(
                newValue.map { $0.lowerBound > 0 } ?? true, "TestConnection.chunkSizes must be positive.")
            relay.chunkSizes = newValue
        }
    }

    /// Stops passing bytes on. What this end writes stays in its buffers, until they are full.
    public func stall() { relay.isStalled = true }

    /// Passes bytes on again.
    public func resume() { relay.isStalled = false }

    /// Closes this end, as if its process had ended, after the peer has received `count` more bytes. The peer reads the end of
    /// the stream, or fails with `Errno.connectionReset` if this end has not read all that had arrived; further writes of both
    /// ends fail.
    ///
    /// - Precondition: `count` is not negative.
    public func close(afterBytes count: Int) {
        precondition(count >= 0, "TestConnection.close(afterBytes:) needs a count that is not negative.")
        relay.closes(after: count)
    }

    /// Resets the connection: both ends fail with `Errno.connectionReset` when they have read what had arrived. An end whose
    /// output had been shut down reads the end in its place, and one whose input is not open fails with `Errno.brokenPipe`.
    public func reset() { relay.reset() }
}

/// Two ends of a socket: one for the tested code, a client or a server, and one for the relay.
final class SocketPair {
    /// -1 while a server has not accepted it.
    private(set) var testedEnd: CInt
    let relayEnd: CInt
    private(set) var testedFile: UInt64
    private var isOpen = true
    /// Whether it is reset once it is accepted.
    private var awaitsReset = false
    /// Whether the last byte in the socket is not the tested code's, but that of ``willEndOutput()``.
    private var hasMarker = false

    init() throws(Errno) {
        var numbers: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        try SystemCall.make { unsafe socketpair(AF_UNIX, type, 0, &numbers) }
        (testedEnd, relayEnd) = (numbers[0], numbers[1])
        testedFile = inodeNumber(of: testedEnd)
    }

    /// A pair whose first end a server accepts from a listening socket.
    ///
    /// - Throws: `Errno.connectionRefused`; `Errno.resourceTemporarilyUnavailable` if the backlog is full.
    init(from name: SocketAddress, to listener: SocketAddress) throws(Errno) {
        let descriptor = try FileDescriptor.socket(.unix, SOCK_STREAM)
        (testedEnd, testedFile, relayEnd) = (-1, 0, descriptor.rawValue)
        do throws(Errno) {
            try descriptor.bind(to: name)
            try descriptor.connect(to: listener)
        } catch {
            closeRelayEnd()
            throw error
        }
    }

    deinit { closeRelayEnd() }

    /// The server has accepted its end.
    func accepted(_ number: CInt) {
        (testedEnd, testedFile) = (number, inodeNumber(of: number))
        if exchange(&awaitsReset, with: false) { reset() }
    }

    /// Closes the end of the tested code, which no stream has got.
    func closeTestedEnd() {
        _ = Glibc.close(testedEnd)
        testedEndWasClosed()
    }

    /// The tested code is about to end its output. It could not be reset afterwards, unless a byte of it stays unread.
    func willEndOutput() {
        guard !hasMarker else { return }
        // There may be no room. The kernel doubles this, which is its limit by default, and more than the size at first.
        _ = reactor_set_option(testedEnd, SOL_SOCKET, SO_SNDBUF, 212_992)
        hasMarker = unsafe Glibc.send(testedEnd, "x", 1, CInt(MSG_NOSIGNAL)) == 1
    }

    /// How many bytes of the tested code can be read at once; zero for its end.
    func readableCount(upTo limit: Int) -> Int { hasMarker ? min(unreadCount - 1, limit) : limit }

    private var unreadCount: Int { Int(reactor_queued_bytes(relayEnd, UInt(FIONREAD))) }

    /// The tested code has closed its end, or the listener that has not accepted it.
    func testedEndWasClosed() { if isOpen { Self.awaitEnd(of: relayEnd) } }

    /// Closes the relay's end. The tested code then reads the end, even while a child that was forked just now has a copy.
    func close() {
        guard !awaitsReset else { return }
        if isOpen, hasMarker, unreadCount == 1 {
            var byte: UInt8 = 0
            _ = unsafe recv(relayEnd, &byte, 1, 0)
        }
        if isOpen { _ = shutdown(relayEnd, CInt(SHUT_RDWR)) }
        closeRelayEnd()
    }

    private func closeRelayEnd() {
        guard isOpen else { return }
        isOpen = false
        _ = Glibc.close(relayEnd)
    }

    /// Closes the relay's end, so that the other end fails.
    func reset() {
        guard isOpen else { return }
        guard testedEnd >= 0 else {
            awaitsReset = true
            return
        }
        // The tested code may have closed its end, whose number may be another descriptor's by now.
        guard !Self.isHungUp(relayEnd), inodeNumber(of: testedEnd) == testedFile else {
            return closeRelayEnd()
        }
        // The kernel resets a connection when an end is closed that has not read everything.
        _ = unsafe Glibc.send(testedEnd, "x", 1, CInt(MSG_NOSIGNAL))
        closeRelayEnd()
        Self.awaitEnd(of: testedEnd)
    }

    /// Waits until the other end of a socket is closed. A child that was forked at this moment has a copy until it calls
    /// exec(3), so that in virtual time the end would come late.
    private static func awaitEnd(of descriptor: CInt) {
        for _ in 0..<maximumCheckCount where !isHungUp(descriptor) { usleep(100) }
    }

    /// For a tenth of a second: a child calls exec(3) sooner, also on a busy machine.
    private static let maximumCheckCount = 1000

    private static func isHungUp(_ descriptor: CInt) -> Bool {
        var state = pollfd(fd: descriptor, events: 0, revents: 0)
        return unsafe poll(&state, 1, 0) > 0 && state.revents & Int16(POLLHUP) != 0
    }
}
