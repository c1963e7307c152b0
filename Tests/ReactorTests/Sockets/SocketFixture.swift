import Glibc
import Reactor
import SystemPackage
import Testing

/// The kinds of address are the same for stream sockets.
typealias AddressKind = DatagramKind

/// The origin of a pair of socket streams.
enum SocketOrigin: String, CaseIterable, Sendable, Codable {
    case host, ipv4, ipv6, path, abstract, descriptor

    /// The origins that have to be connected.
    static var connected: [SocketOrigin] { allCases.filter { $0 != .descriptor } }

    fileprivate var addressKind: AddressKind {
        switch self {
        case .host, .ipv4, .descriptor: .ipv4
        case .ipv6: .ipv6
        case .path: .path
        case .abstract: .abstract
        }
    }
}

/// A pair of socket streams and its peer.
final class SocketFixture {
    private(set) var connection: Connection!
    private(set) var input: InputStream!
    private(set) var output: OutputStream!
    /// Nil for a descriptor, which is already connected.
    let server: SocketServer?
    private var knownPeer: SocketPeer?

    /// - Parameter isNarrow: Whether the kernel's buffers are small at both ends.
    init(_ origin: SocketOrigin = .ipv4, isNarrow: Bool = false) throws {
        guard origin != .descriptor else {
            server = nil
            let (peer, other) = try SocketPeer.pair()
            if isNarrow { for number in [peer.number, other.rawValue] { SocketPeer.narrow(number) } }
            knownPeer = peer
            connection = Connection(descriptor: other)
            (input, output) = connection.streams
            return
        }
        let server = try SocketServer(origin.addressKind, isNarrow: isNarrow)
        self.server = server
        connection =
            origin == .host
            ? Connection(toHost: "localhost", port: server.port) : Connection(to: server.address)
        (input, output) = connection.streams
    }

    /// The peer of the streams. Waits until one of them has been opened.
    var peer: SocketPeer {
        get throws {
            if let knownPeer { return knownPeer }
            let peer = try #require(try server?.accept())
            knownPeer = peer
            return peer
        }
    }

    var streams: [Stream] { [input, output] }

    func closeBoth() { for stream in streams { stream.close() } }

    func releaseStreams() { (connection, input, output) = (nil, nil, nil) }

    func releaseOutput() { (connection, output) = (nil, nil) }

    /// Opens both, off a loop, and waits until they are open.
    func openBoth() throws {
        for stream in streams { stream.open() }
        waitUntilOpen(streams)
        for stream in streams { try #require(stream.streamStatus == .open) }
        _ = try peer
    }

    /// Opens both on the current loop.
    func startBoth(_ reader: Recorder, _ writer: Recorder) {
        input.start(reader)
        output.start(writer)
    }

    /// Opens both on the current loop, and runs it until they are open and the output has space.
    func start(_ reader: Recorder, _ writer: Recorder) throws {
        startBoth(reader, writer)
        RunLoop.current.serve { !reader.events.isEmpty && writer.count(.hasSpaceAvailable) == 1 }
        _ = try peer
    }

    /// Schedules both, which are open, on the current loop.
    func schedule(_ reader: Recorder, _ writer: Recorder) {
        for (stream, recorder) in [(input, reader), (output, writer)] as [(Stream, Recorder)] {
            stream.delegate = recorder
            stream.schedule(in: .current, forMode: .default)
        }
    }

    /// Makes the kernel's buffers of the streams' socket small. The socket must exist.
    func narrow() throws {
        SocketPeer.narrow(try #require(connection.descriptor).rawValue)
        try peer.narrow()
    }

    /// Writes until nothing more is accepted, and returns how much was.
    func fill() -> Int { output.fill() }
}

/// Waits, off a loop, until none of `streams` is opening any more.
func waitUntilOpen(_ streams: [Stream]) { waitUntil { streams.allSatisfy { $0.streamStatus != .opening } } }

/// The number of socket descriptors of the process. Only useful in a process in which no other test runs.
func openSockets() -> Int { openPaths().count { $0.hasPrefix("socket:") } }

extension FileDescriptor {
    /// The value of a socket's option; -1 if there is none.
    func socketOption(_ level: CInt, _ name: CInt) -> CInt {
        var (value, size) = (CInt(-1), socklen_t(MemoryLayout<CInt>.size))
        getsockopt(rawValue, level, name, &value, &size)
        return value
    }
}

extension OutputStream {
    /// Writes once, and returns how many of `bytes` were accepted; -1 for an error.
    func writeOnce(_ bytes: some Collection<UInt8>) -> Int {
        Array(bytes).withUnsafeBufferPointer { write($0.baseAddress!, maxLength: $0.count) }
    }

    /// Writes until nothing more is accepted, and returns how much was.
    func fill() -> Int {
        var sent = 0
        while case let count = writeOnce(pattern(5000)), count > 0 { sent += count }
        return sent
    }
}

/// A thread that computes a value.
struct Background<Value: Sendable> {
    private let thread: JoinableThread
    private let answer = Answer<Value>()

    init(_ body: @escaping @Sendable () -> Value) throws {
        thread = try JoinableThread { [answer] in answer.give(body()) }
    }

    /// Waits for the end of the thread.
    var value: Value {
        thread.join()
        return answer.wait()
    }
}

// MARK: Servers

/// A listening socket, by plain system calls.
final class SocketServer: Sendable {
    private let listening: SocketPeer
    let address: SocketAddress

    /// - Parameter isNarrow: Whether the kernel's buffers of connections are small.
    init(_ kind: AddressKind = .ipv4, backlog: CInt = 64, isNarrow: Bool = false) throws {
        let wanted = kind.freshAddress()
        listening = try SocketPeer(family: CInt(wanted.family.rawValue))
        if isNarrow { listening.narrow() }
        try listening.bind(to: wanted)
        try listening.listen(backlog)
        address = try listening.localAddress
    }

    deinit {
        listening.close()
        if let path = address.unixPath { unlink(path.string) }
    }

    var port: UInt16 { address.port ?? 0 }

    /// Waits for the next connection.
    func accept() throws -> SocketPeer { try listening.accept() }

    /// Whether a connection is pending.
    var hasPendingConnection: Bool {
        var request = pollfd(fd: listening.number, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, 0) == 1
    }

    /// Ends the wait of a thread for a connection.
    func stopAccepting() { Glibc.shutdown(listening.number, CInt(SHUT_RDWR)) }
}

/// An address without a listener: port 1, at which no program listens; a name or a path that no socket has.
func refusingAddress(_ kind: AddressKind = .ipv4) -> SocketAddress {
    switch kind {
    case .ipv4: .ipv4Loopback(port: 1)
    case .ipv6: .ipv6Loopback(port: 1)
    case .path, .abstract: kind.freshAddress()
    }
}

/// Serves one connection, on a thread of its own.
final class SocketHost {
    private let server: SocketServer
    private let thread: JoinableThread
    var address: SocketAddress { server.address }

    init(_ kind: AddressKind = .ipv4, _ body: @escaping @Sendable (SocketPeer) -> Void) throws {
        let server = try SocketServer(kind)
        self.server = server
        thread = try JoinableThread(name: "host") { if let peer = try? server.accept() { body(peer) } }
    }

    deinit {
        server.stopAccepting()
        thread.join()
    }
}

/// A listener with a full backlog: further clients keep connecting.
final class FullServer {
    private let server: SocketServer
    private let clients: [SocketPeer]
    var address: SocketAddress { server.address }

    init(_ kind: AddressKind = .ipv4) throws {
        server = try SocketServer(kind, backlog: 0)
        let address = server.address
        // The kernel accepts one client, and one more fits in the backlog.
        clients = try (0..<2).map { _ in
            let client = try SocketPeer(family: CInt(address.family.rawValue), isBlocking: false)
            try? client.connect(to: address)
            return client
        }
        var request = pollfd(fd: clients[0].number, events: Int16(POLLOUT), revents: 0)
        try #require(poll(&request, 1, 60_000) == 1)
    }

    /// Accepts one client, which makes room for another.
    func acceptOne() { _ = try? server.accept() }
}
