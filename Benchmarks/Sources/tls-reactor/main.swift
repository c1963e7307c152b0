// tls-reactor KIND COUNT PORT CERTIFICATE  A client of tls-server, with delegates of streams on the main loop. Prints the
//                                          columns of tls-openssl. With a KEY as well: the server of tls-clients.

import Glibc
import Measuring
import Reactor
import ReactorTLS

let kind = CommandLine.arguments[1]
let (count, port, _) = numbers(from: 2)
let connectionCount = count
let loop = RunLoop.main

/// A connection that sends a request, and then reads or writes.
final class Client: StreamDelegate {
    let input: InputStream
    let output: OutputStream
    private let onBytes: (Int) -> Void
    private var request: [UInt8]
    private var left: Int
    private let block: UnsafeMutablePointer<UInt8>

    /// - Parameters:
    ///   - block: 64 KiB, which all clients share.
    ///   - onBytes: Called with the number of bytes that were read.
    init(
        _ settings: TLSSettings, _ block: UnsafeMutablePointer<UInt8>, onBytes: @escaping (Int) -> Void
    ) throws {
        self.block = block
        (input, output) = Connection(to: .ipv4Loopback(port: UInt16(port))).streams
        let letter: Unicode.Scalar = kind == "full" || kind == "resumed" ? "h" : kind.unicodeScalars.first!
        let size = kind == "get" || kind == "put" ? count << 20 : 0
        request = [UInt8(ascii: letter)] + (0..<8).map { UInt8(truncatingIfNeeded: size >> (8 * $0)) }
        left = kind == "put" ? size : 0
        self.onBytes = onBytes
        try input.beginTLS(settings)
        for stream in [input, output] as [Stream] {
            stream.delegate = self
            stream.schedule(in: loop, forMode: .default)
            stream.open()
        }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: onBytes(input.read(block, maxLength: 65_536))
        case .hasSpaceAvailable: write()
        case .errorOccurred: fatalError("\(stream.streamError!)")
        default: break
        }
    }

    private func write() {
        if !request.isEmpty { request.removeFirst(max(0, output.write(request, maxLength: request.count))) }
        if left > 0 { left -= max(0, output.write(block, maxLength: min(left, 65_536))) }
    }

    func close() { for stream in [input, output] as [Stream] { stream.close() } }
}

final class Workload {
    private var settings = TLSSettings.client()
    private let block = UnsafeMutablePointer<UInt8>.allocate(capacity: 65_536)
    private var clients: [Client] = []
    private var wall = now()
    private var processor = processorTime()

    init() {
        settings.trust = .file(FilePath(CommandLine.arguments[4]))
        settings.peerName = "localhost"
        settings.resumesSessions = kind == "resumed"
    }

    private func start(onBytes: @escaping (Int) -> Void) {
        do { clients.append(try Client(settings, block, onBytes: onBytes)) } catch { fatalError("\(error)") }
    }

    func transfer() {
        let size = count << 20
        var received = 0
        start { [self] more in
            received += more
            guard kind == "put" || received >= size else { return }
            let (cost, time) = (processorTime() - processor, now() - wall)
            report([fixed(Double(cost) / Double(size), 3), fixed(Double(size) / Double(time), 3)])
        }
    }

    /// The first one is not counted.
    func handshakes(left: Int = count + 1) {
        clients = []
        start { [self] _ in
            clients[0].close()
            if left > count { (wall, processor) = (now(), processorTime()) }
            if left > 1 { return handshakes(left: left - 1) }
            let (cost, time) = (processorTime() - processor, now() - wall)
            report([
                fixed(Double(cost) / 1e3 / Double(count)), fixed(Double(count) * 1e9 / Double(time), 0),
            ])
        }
    }

    /// The first one is not counted.
    func idle(left: Int = count + 1, before: Int64 = 0) {
        start { [self] _ in
            if left > 1 { return idle(left: left - 1, before: left > count ? residentBytes() : before) }
            report([fixed(Double(residentBytes() - before) / 1024 / Double(count))])
        }
    }
}

/// A server whose clients send a request each. It ends them, unless the kind is `server-idle`.
final class Server: StreamDelegate {
    private let isIdle = kind == "server-idle"
    private var listener: Listener?
    private var connections: [ObjectIdentifier: Connection] = [:]
    private var servedCount = 0
    private var (wall, processor, resident) = (Int64(0), Int64(0), Int64(0))
    private let block = UnsafeMutablePointer<UInt8>.allocate(capacity: 16)

    func start(_ identity: TLSIdentity) throws {
        listener = try Listener(.ipv4Loopback(port: UInt16(port)), security: .tls(.server(identity))) {
            [self] in
            accept($1)
        } acceptErrors: {
            fatalError("\($1)")
        }
        try loop.add(listener!, forMode: .default)
    }

    private func accept(_ connection: Connection) {
        connections[ObjectIdentifier(connection.streams.input)] = connection
        connection.streams.input.delegate = self
        connection.streams.input.schedule(in: loop, forMode: .default)
        for stream in [connection.streams.input, connection.streams.output] as [Stream] { stream.open() }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard let connection = connections[ObjectIdentifier(stream)] else { return }
        switch event {
        case .hasBytesAvailable:
            _ = connection.streams.input.read(block, maxLength: 9)
            _ = connection.streams.output.write(block, maxLength: 1)
            if !isIdle { end(connection) }
            count()
        case .endEncountered, .errorOccurred: end(connection)
        default: break
        }
    }

    private func end(_ connection: Connection) {
        connections[ObjectIdentifier(connection.streams.input)] = nil
        for stream in [connection.streams.input, connection.streams.output] as [Stream] { stream.close() }
    }

    /// The first one is not counted.
    private func count() {
        servedCount += 1
        if servedCount == 1 { (wall, processor, resident) = (now(), processorTime(), residentBytes()) }
        guard servedCount == connectionCount + 1 else { return }
        let (cost, time) = (processorTime() - processor, now() - wall)
        let size = residentBytes() - resident
        if isIdle { report([fixed(Double(size) / 1024 / Double(connectionCount))]) }
        report([
            fixed(Double(cost) / 1e3 / Double(connectionCount)),
            fixed(Double(connectionCount) * 1e9 / Double(time), 0),
        ])
    }
}

if kind == "context" {
    let processor = processorTime()
    let (input, _) = Connection(to: .ipv4Loopback(port: UInt16(port))).streams
    try input.beginTLS()
    report([fixed(Double(processorTime() - processor) / 1e6, 2)])
}
let server = Server()
if CommandLine.arguments.count > 5 {
    allowDescriptors(count + 64)
    let (certificate, key) = (FilePath(CommandLine.arguments[4]), FilePath(CommandLine.arguments[5]))
    try server.start(TLSIdentity(certificateFile: certificate, keyFile: key))
    loop.run(in: .default)
}
let workload = Workload()
switch kind {
case "get", "put": workload.transfer()
case "idle":
    allowDescriptors(2 * count + 64)
    workload.idle()
default: workload.handshakes()
}
loop.run(in: .default)
