import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import SystemPackage
import Testing

/// The library has an internal one.
typealias JoinableThread = ReactorTestSupport.JoinableThread
typealias Version = TLSSettings.Version

extension TLSSettings {
    /// A client that trusts the tests' authority, and expects `name`.
    static func testClient(_ name: String? = "localhost", _ change: (inout TLSSettings) -> Void = { _ in })
        -> TLSSettings
    {
        var settings = TLSSettings.client()
        settings.trust = TestCertificates.trust
        settings.peerName = name
        change(&settings)
        return settings
    }

    static func testServer(
        _ certificate: Certificate = TestCertificates.localhost,
        _ change: (inout TLSSettings) -> Void = { _ in }
    ) throws -> TLSSettings {
        var settings = TLSSettings.server(try certificate.identity)
        settings.trust = TestCertificates.trust
        change(&settings)
        return settings
    }
}

/// Both streams of a socket.
struct TLSEnd {
    let input: InputStream
    let output: OutputStream

    init(_ streams: (InputStream, OutputStream)) { (input, output) = streams }

    /// Streams that own the socket. Opens them if there are settings.
    init(_ number: CInt, _ settings: TLSSettings? = nil) throws {
        self.init(Connection(descriptor: FileDescriptor(rawValue: number)))
        guard let settings else { return }
        try input.beginTLS(settings)
        open()
    }

    init(_ connection: Connection) { self.init((connection.streams.input, connection.streams.output)) }

    /// An end and a socket at the other end.
    static func withPeer(_ settings: TLSSettings? = nil) throws -> (TLSEnd, SocketPeer) {
        let (number, other) = try socketPair()
        return (try TLSEnd(number, settings), SocketPeer(other))
    }

    var streams: [Stream] { [input, output] }
    var error: TLSError? { input.streamError as? TLSError }

    func open() { for stream in streams { stream.open() } }

    func close() { for stream in streams { stream.close() } }

    /// Waits until the handshake has ended.
    @discardableResult
    func settle() -> Self {
        serve(streams) { streams.allSatisfy { $0.streamStatus != .opening } }
        return self
    }

    /// Delivers the events of both streams to `recorder`, on the calling thread's loop.
    func schedule(_ recorder: Recorder) {
        for stream in streams {
            stream.delegate = recorder
            stream.schedule(in: .current, forMode: .default)
        }
    }
}

/// Serves `streams`, which are in no loop, on the calling thread's loop until `condition` is true.
func serve(_ streams: [Stream], until condition: () -> Bool) {
    let (recorder, mode) = (Recorder(), RunLoop.Mode("serving"))
    for stream in streams {
        stream.delegate = recorder
        stream.schedule(in: .current, forMode: mode)
    }
    RunLoop.current.serve(in: mode, until: condition)
    for stream in streams {
        stream.remove(from: .current, forMode: mode)
        stream.delegate = nil
    }
}

/// A client and a server, both of the library, over a pair of sockets.
final class TLSPair {
    let client: TLSEnd
    let server: TLSEnd

    init(_ client: TLSEnd, _ server: TLSEnd) { (self.client, self.server) = (client, server) }

    /// Makes both, and opens them.
    convenience init(
        client clientSettings: TLSSettings, server serverSettings: TLSSettings, isTCP: Bool = false
    ) throws {
        let numbers = isTCP ? try connectedSockets() : try socketPair()
        let client = try TLSEnd(numbers.0, clientSettings)
        let server = try TLSEnd(numbers.1)
        try server.output.beginTLS(serverSettings)
        server.open()
        self.init(client, server)
    }

    /// Makes a client that connects to `listening`, under whose address its sessions are kept, and opens both.
    convenience init(client settings: TLSSettings, server: TLSSettings, at listening: SocketPeer) throws {
        let client = TLSEnd(Connection(to: try listening.localAddress))
        try client.input.beginTLS(settings)
        client.open()
        self.init(client, try TLSEnd(try listening.acceptNumber(), server))
    }

    var streams: [Stream] { client.streams + server.streams }

    /// Waits until both handshakes have ended.
    @discardableResult
    func settle() -> TLSPair {
        serve(streams) { streams.allSatisfy { $0.streamStatus != .opening } }
        return self
    }

    /// Waits until both ends are open.
    func opened() throws -> TLSPair {
        settle()
        for stream in streams {
            try #require(stream.streamStatus == .open, "\(stream.streamError.map { "\($0)" } ?? "not open")")
        }
        return self
    }

    func close() {
        client.close()
        server.close()
    }
}

/// Why a client refuses a server; nil if it does not.
func refusal(_ client: TLSSettings, _ server: TLSSettings) throws -> TLSError.Reason? {
    let pair = try TLSPair(client: client, server: server)
    defer { pair.close() }
    return pair.client.settle().input.streamStatus == .open ? nil : try #require(pair.client.error).reason
}

/// Two ends of a TCP connection.
func connectedSockets() throws -> (CInt, CInt) {
    let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
    let client = try SocketPeer(connectedTo: listening.localAddress)
    defer { withExtendedLifetime(client) {} }
    return (dup(client.number), try listening.acceptNumber())
}

extension SocketPeer {
    /// Waits for the next connection; the caller owns its socket.
    func acceptNumber() throws -> CInt {
        let peer = try accept()
        return withExtendedLifetime(peer) { dup(peer.number) }
    }
}

extension InputStream {
    /// Everything up to the end, or to an error.
    func readToEnd(by size: Int = 65_536) -> [UInt8] {
        var bytes: [UInt8] = []
        while case let more = read(upTo: size), !more.isEmpty { bytes += more }
        return bytes
    }

    func read(exactly count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, case let more = read(upTo: count - bytes.count), !more.isEmpty {
            bytes += more
        }
        return bytes
    }
}

/// Bytes that show when a piece of them is missing, repeated or misplaced.
func pattern(_ count: Int) -> [UInt8] { Array(longPattern.prefix(count)) }

private let longPattern: [UInt8] = {
    // A prime number of bytes, doubled: no record has a multiple of its period.
    var bytes = Array(UInt8(0)..<251)
    while bytes.count < 4_000_000 { bytes += bytes }
    return bytes
}()

/// Records the events of streams.
final class Recorder: StreamDelegate {
    var events: [Stream.Event] = []
    var bytes: [UInt8] = []
    var onEvent: (Stream, Stream.Event) -> Void = { _, _ in }

    init() {}

    /// Reads up to `size` bytes at each event.
    convenience init(readingUpTo size: Int) {
        self.init()
        onEvent = { [unowned self] stream, event in
            if event == .hasBytesAvailable { bytes += (stream as! InputStream).read(upTo: size) }
        }
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.append(eventCode)
        onEvent(aStream, eventCode)
    }

    func count(_ event: Stream.Event) -> Int { events.count { $0 == event } }
}

extension RunLoop {
    /// Runs, one source at a time, until `condition` is true.
    func serve(in mode: Mode = .default, until condition: () -> Bool) {
        while !condition() {
            let result = run(in: mode, returnAfterSourceHandled: true)
            guard result == .handledSource || condition() else {
                Issue.record("the loop ended (\(result)) before what the test waits for")
                return
            }
        }
    }

    /// Serves what has arrived already.
    func servePending() { for _ in 0..<5 { run(in: .default, until: .distantPast) } }
}
