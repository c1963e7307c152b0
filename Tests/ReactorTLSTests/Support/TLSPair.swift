import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import SystemPackage
import Testing

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

/// The library has an internal one.
typealias JoinableThread = ReactorTestSupport.JoinableThread

/// A client and a server, both of the library, over a pair of sockets.
final class TLSPair {
    struct End {
        let input: InputStream
        let output: OutputStream

        var streams: [Stream] { [input, output] }
        var error: TLSError? { input.streamError as? TLSError }

        func close() { for stream in streams { stream.close() } }
    }

    let client: End
    let server: End

    /// Makes both, and opens them.
    init(client clientSettings: TLSSettings, server serverSettings: TLSSettings, isTCP: Bool = false) throws {
        let numbers = isTCP ? try connectedSockets() : try socketPair()
        client = Self.end(numbers.0)
        server = Self.end(numbers.1)
        try client.input.startTLS(clientSettings)
        try server.output.startTLS(serverSettings)
        for stream in client.streams + server.streams { stream.open() }
    }

    /// Makes a client that connects to `listening`, under whose address its sessions are kept, and opens both.
    init(client clientSettings: TLSSettings, server serverSettings: TLSSettings, at listening: SocketPeer)
        throws
    {
        let (input, output) = Stream.connection(to: try listening.localAddress)
        client = End(input: input, output: output)
        try input.startTLS(clientSettings)
        for stream in client.streams { stream.open() }
        server = Self.end(try listening.acceptNumber())
        try server.input.startTLS(serverSettings)
        for stream in server.streams { stream.open() }
    }

    /// Two streams of a socket.
    static func end(_ number: CInt) -> End {
        let (input, output) = Stream.connection(
            descriptor: FileDescriptor(rawValue: number), closeWhenDone: true)
        return End(input: input, output: output)
    }

    var streams: [Stream] { client.streams + server.streams }

    /// Waits until both handshakes have ended.
    @discardableResult
    func settle() -> TLSPair {
        waitUntil { streams.allSatisfy { $0.streamStatus != .opening } }
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

    private func read(upTo size: Int) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: size)
        let count = read(&buffer, maxLength: size)
        return Array(buffer.prefix(max(0, count)))
    }
}

extension OutputStream {
    /// Writes all of `bytes`, unless the stream fails.
    func writeAll(_ bytes: [UInt8]) {
        var rest = bytes[...]
        while !rest.isEmpty,
            case let count = rest.withUnsafeBytes({
                write($0.baseAddress!.assumingMemoryBound(to: UInt8.self), maxLength: $0.count)
            }), count > 0
        {
            rest = rest.dropFirst(count)
        }
    }
}

extension OutputStream {
    /// Writes `count` bytes of the pattern, and ends the output.
    func write(pattern count: Int) {
        var written = 0
        while written < count {
            let offset = written % patternPeriod
            let size = min(100_000, count - written)
            let result = longPattern.withUnsafeBufferPointer {
                write($0.baseAddress! + offset, maxLength: size)
            }
            guard result > 0 else { return }
            written += result
        }
        try? shutDown()
    }
}

extension InputStream {
    /// Reads to the end; whether that is `count` bytes of the pattern.
    func read(pattern count: Int) -> Bool {
        var (buffer, received) = ([UInt8](repeating: 0, count: 65_536), 0)
        while case let more = read(&buffer, maxLength: buffer.count), more > 0 {
            let offset = received % patternPeriod
            guard longPattern.withUnsafeBufferPointer({ memcmp($0.baseAddress! + offset, buffer, more) }) == 0
            else { return false }
            received += more
        }
        return received == count && streamStatus == .atEnd
    }
}

private let patternPeriod = 251

/// Bytes that show when a piece of them is missing, repeated or misplaced.
func pattern(_ count: Int) -> [UInt8] { Array(longPattern.prefix(count)) }

private let longPattern: [UInt8] = {
    // A prime number of bytes, doubled: no record has a multiple of its period.
    var bytes = Array(UInt8(0)..<UInt8(patternPeriod))
    while bytes.count < 4_000_000 { bytes += bytes }
    return bytes
}()

/// Records the events of streams.
final class Recorder: StreamDelegate {
    var events: [Stream.Event] = []
    var bytes: [UInt8] = []
    var onEvent: (Stream, Stream.Event) -> Void = { _, _ in }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.append(eventCode)
        onEvent(aStream, eventCode)
    }

    func count(_ event: Stream.Event) -> Int { events.count { $0 == event } }
}

extension RunLoop {
    /// Runs, one source at a time, until `condition` is true.
    func serve(until condition: () -> Bool) {
        while !condition() {
            let result = run(
                in: .default, until: .now.advanced(by: .seconds(900)), returnAfterSourceHandled: true)
            guard result == .handledSource || condition() else {
                Issue.record("the loop ended (\(result)) before what the test waits for")
                return
            }
        }
    }
}
