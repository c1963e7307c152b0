import Glibc
public import Reactor
public import SystemPackage

/// One end of a connection inside a test, whose bytes the test delays, cuts into pieces, or loses.
///
/// ```swift
/// let (client, server) = try TestConnection.pair()
/// server.latency = .milliseconds(40)
/// server.pieceSizes = 1...7
/// let session = Session(client.input, client.output)
/// ```
///
/// The streams are socket streams, and take every property of one. What one end writes arrives at the other
/// through a relay, which the properties and methods of the end that has sent it control. In virtual time
/// (`withVirtualTime`) a connection makes nobody wait: its bytes arrive, and latencies pass, at once.
///
/// A connection is used on the thread that makes it, whose loop relays the bytes in the common modes. It lasts until both ends are closed or released. The sockets are Unix-domain sockets: they have no addresses, and descriptors and
/// parts of files do not pass.
public final class TestConnection {
    /// Reads what the other end has written. Not open yet.
    public let input: InputStream
    /// Writes to the other end. Not open yet.
    public let output: OutputStream
    private let relay: Relay

    private init(_ socket: CInt, sendingThrough relay: Relay) {
        (input, output) = Stream.connection(descriptor: FileDescriptor(rawValue: socket), closeWhenDone: true)
        self.relay = relay
    }

    /// Makes the two ends of a connection on the calling thread's loop.
    ///
    /// - Parameter seed: Decides on the sizes of pieces; see ``pieceSizes``.
    /// - Throws: An error of socketpair(2): `Errno.tooManyOpenFiles`.
    public static func pair(seed: UInt64 = 0) throws(Errno) -> (TestConnection, TestConnection) {
        let (first, second) = (try SocketPair(), try SocketPair())
        let there = Relay(from: first, to: second, seed)
        let back = Relay(from: second, to: first, seed &+ 1)
        there.opposite = back
        back.opposite = there
        for relay in [there, back] { try relay.begin() }
        return (
            TestConnection(first.end, sendingThrough: there), TestConnection(second.end, sendingThrough: back)
        )
    }

    // MARK: What this end sends

    /// How much later than written bytes arrive at the other end. Zero unless set.
    public var latency: Duration {
        get { relay.latency }
        set { relay.latency = newValue }
    }

    /// The sizes of the pieces in which bytes arrive at the other end, chosen at random; nil for pieces as they were written. The other
    /// end reads each piece by itself.
    ///
    /// - Precondition: The sizes are positive.
    public var pieceSizes: ClosedRange<Int>? {
        get { relay.pieceSizes }
        set {
            precondition(
                newValue.map { $0.lowerBound > 0 } ?? true, "TestConnection.pieceSizes must be positive.")
            relay.pieceSizes = newValue
        }
    }

    /// Stops passing bytes on. What this end writes stays in its buffers, until they are full.
    public func stall() { relay.isStalled = true }

    /// Passes bytes on again.
    public func resume() { relay.isStalled = false }

    /// Closes this end as if its process had ended, once `count` more bytes have arrived at the other: that reads its end, and
    /// what this end writes afterwards fails.
    public func close(afterBytes count: Int) { relay.closes(after: count) }

    /// Resets the connection: both ends fail with `Errno.connectionReset` when they have read what had arrived.
    public func reset() { relay.reset() }
}

/// A socket of a client, and the relay's end of it.
final class SocketPair {
    let end: CInt
    let relayed: CInt
    private var isOpen = true

    init() throws(Errno) {
        var numbers: (CInt, CInt) = (-1, -1)
        let code = unsafe withUnsafeMutableBytes(of: &numbers) { bytes in
            unsafe socketpair(
                AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0,
                bytes.bindMemory(to: CInt.self).baseAddress!)
        }
        guard code == 0 else { throw Errno(rawValue: errno) }
        (end, relayed) = numbers
    }

    deinit { close() }

    /// Closes the relay's end. The client's end reads the end.
    func close() {
        guard isOpen else { return }
        isOpen = false
        _ = Glibc.close(relayed)
    }

    /// Closes the relay's end, so that the client's end fails.
    func reset() {
        guard isOpen else { return }
        // The client may have closed its end, whose number may be another descriptor's by now.
        var state = pollfd(fd: relayed, events: 0, revents: 0)
        let isHungUp = unsafe poll(&state, 1, 0) > 0 && state.revents & Int16(POLLHUP) != 0
        // The kernel resets a connection when an end is closed that has not read everything.
        if !isHungUp { _ = unsafe Glibc.send(end, "x", 1, CInt(MSG_NOSIGNAL)) }
        close()
    }
}
