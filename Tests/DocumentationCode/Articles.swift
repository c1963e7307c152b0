// The code of the articles in Reactor.docc. scripts/check-code compares it with them; compiling it is the test.

import Dispatch
import Glibc
import Reactor
import SystemPackage

private func overview() {
    let input = InputStream(path: "/etc/services")
    let reader = LineReader(input, into: 0, on: DispatchQueue(label: "lines")) { count, line, _ in
        if line.byteCount > 40 { count += 1 }
    }
    reader.start { report in
        print("\(report.output.value) of \(report.output.lineCount) lines are long")
        RunLoop.current.stop()
    }
    RunLoop.current.run(in: .default)
}

// MARK: - Getting started

private func endWithMessage() async {
    do {
        for try await line in InputStream(path: "/etc/services").lines { print(line) }
    } catch {
        _ = try? FileDescriptor.standardError.writeAll("\(error)\n".utf8)
        exit(1)
    }
}

private func runTimer() {
    Timer.scheduled(every: .seconds(1)) { _ in print("tick") }
    RunLoop.current.run(in: .default, until: .now.advanced(by: .seconds(10)))
}

private func readLines() {
    let input = InputStream(path: "/etc/services")
    let reader = LineReader(input, into: 0, on: DispatchQueue(label: "lines")) { longest, line, _ in
        longest = max(longest, line.byteCount)
    }
    reader.start { report in
        switch report.ending {
        case .finished: print("the longest line has \(report.output.value) bytes")
        case .stopped, .cancelled: print("ended early")
        case .failed(let error): print("\(error)")
        }
        RunLoop.current.stop()
    }
    RunLoop.current.run(in: .default)
}

// MARK: - Modes

private final class Dragging {
    var buttonReleased = {}

    func drag() {
        let release = RunLoop.Source { RunLoop.current.stop() }
        RunLoop.current.add(release, forMode: .tracking)
        buttonReleased = {
            release.signal()
            RunLoop.main.wakeUp()
        }
        RunLoop.current.run(in: .tracking)
        release.invalidate()
    }
}

private final class Requesting {
    var reply: [UInt8]?

    func waitForReply(from input: InputStream, until deadline: Deadline) -> [UInt8]? {
        let waiting = RunLoop.Mode("waiting for a reply")
        input.schedule(in: .current, forMode: waiting)
        defer { input.remove(from: .current, forMode: waiting) }
        while reply == nil,
            RunLoop.current.run(in: waiting, until: deadline, returnAfterSourceHandled: true)
                == .handledSource
        {}
        return reply
    }
}

// MARK: - Threads and isolation

private func postResults() {
    let results = Mailbox<Int> { _, sum in
        print("on the loop: \(sum)")
    }
    DispatchQueue.global().async {
        results.post((1...1000).reduce(0, +))
    }
}

@MainActor final class Window: @MainActor StreamDelegate {
    var title = ""

    func stream(_ stream: Stream, handle event: Stream.Event) {
        title = "\(event)"
    }
}

private func startThread() throws {
    let thread = try RunLoopThread(name: "network")
    thread.runLoop.perform {
        Timer.scheduled(every: .seconds(60)) { _ in print("on the network thread") }
    }
    let mode = thread.runLoop.performAndWait { RunLoop.current.currentMode }
    thread.stop()
    print(mode ?? "no mode")
}

// MARK: - Timers and tolerance

private func scheduleTimers() {
    Timer.scheduled(after: .milliseconds(250)) { _ in print("once") }
    let clock = Timer.scheduled(every: .seconds(1), forMode: .common, tolerance: .milliseconds(100)) { _ in
        print("about once a second, also while the user drags")
    }
    clock.invalidate()
    let timer = Timer(interval: .seconds(5), repeats: true) { _ in print("on the main loop") }
    RunLoop.main.add(timer, forMode: .common)
}

private func closeWhenIdle(_ connection: InputStream) {
    var onActivity = {}
    let idle = Timer.scheduled(after: .seconds(30)) { _ in connection.close() }
    onActivity = { idle.fireDate = .now + .seconds(30) }
    onActivity()
}

// MARK: - Streams and their events

private final class Printer: StreamDelegate {
    let input: InputStream

    init(path: FilePath) {
        input = InputStream(path: path)
        input.delegate = self
        input.schedule(in: .current, forMode: .default)
        input.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable:
            print(String(decoding: input.read(upTo: 65_536), as: UTF8.self), terminator: "")
        case .errorOccurred:
            print("\(stream.streamError!)")
            stream.close()
        case .endEncountered: stream.close()
        default: break
        }
    }
}

private func write(_ bytes: [UInt8], to output: OutputStream) -> [UInt8] {
    var rest: [UInt8] = []
    output.writeBufferSize = 65_536
    let accepted = output.write(bytes)
    if accepted < bytes.count { rest = Array(bytes.dropFirst(accepted)) }
    return rest
}

// MARK: - Back-pressure and hand-off

struct Checksum: ChunkProcessor {
    var output: UInt64 = 0

    mutating func process(_ chunk: RawSpan) {
        chunk.withUnsafeBytes { bytes in
            for byte in bytes { output &+= UInt64(byte) }
        }
    }
}

private func add(on queue: DispatchQueue) {
    let handoff = ChunkHandoff(InputStream(path: "/etc/services"), to: Checksum(), on: queue)
    handoff.start { report in
        print("\(report.ending): \(report.output) of \(report.byteCount) bytes")
    }
    let budget = ByteBudget(limit: 4 << 20)
    let limits = HandoffLimits(chunkSize: 16_384, bytesInFlight: 65_536, budget: budget)
    print(limits)
}

// MARK: - Sockets and servers

private final class Client: ConnectionDelegate {
    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted: try? connection.send("HEAD / HTTP/1.0\r\n\r\n")
        case .hasBytesAvailable: print(String(decoding: connection.receive(), as: UTF8.self))
        case .endEncountered: connection.close()
        case .errorOccurred(let error): print(error)
        default: break
        }
    }
}

private func connect() {
    let connection = Connection(
        toHost: "example.org", port: 80,
        options: .init(connectTimeout: .seconds(10), idleTimeout: .seconds(30)))
    connection.open(delegate: Client())
}

private func listen() throws {
    let listener = try Listener(.ipv4Loopback(port: 0)) { listener, connection in
        print("\(connection) on \(listener.localAddress)")
        connection.open(delegate: Answering())
    } acceptErrors: { _, error in
        print(error)  // accept at 127.0.0.1:7007: Too many open files
    }
    try RunLoop.current.add(listener, forMode: .common)
}

// MARK: - Why is my callback silent?

private func explain(_ timer: Timer) {
    print(timer.explain())
    print(RunLoop.main.explain())
}

private func printLoop() {
    print(RunLoop.current.debugDescription)
}

// MARK: - Sockets and servers, A graceful shutdown

private func answer(_ request: [UInt8]) async -> [UInt8] { request }

private func serveUntilSignalled() async throws {
    try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { shutdown in
        try await Listener.run(at: .ipv6Any(port: 7007), limit: 1000) { connection in
            for try await request in connection.messages(.delimiter(), shutdown: shutdown) {
                try await connection.write(await answer(request))
            }
        }
    }
    try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { _ in
        try await Listener.run(at: .ipv6Any(port: 7007)) { connection in
            for try await chunk in connection.chunks() { try await connection.write(chunk) }
        }
    }
}

private func answerMessages(_ connection: Connection) async throws {
    let framer = Framer.lengthPrefix(UInt32.self, limit: 65_536)
    for try await message in connection.messages(framer, timeout: .seconds(60)) {
        try await connection.write(framer.frame(for: await answer(message)))
    }
}

private final class Answering: ConnectionDelegate {
    private var framer = Framer.contentLength(limit: 65_536)

    func connection(_ connection: Connection, handle event: Connection.Event) {
        do {
            switch event {
            case .hasBytesAvailable:
                try framer.push(connection.receive().span.bytes) { request in
                    print("\(request.byteCount) bytes")
                    return .more
                }
            case .endEncountered:
                try framer.finish()
                try connection.sendEnd()
            default: break
            }
        } catch {
            print("\(connection): \(error)")
            connection.close()
        }
    }
}

private final class Subscriber {
    private let updates: SendQueue

    init(_ connection: Connection) {
        updates = SendQueue(to: connection, limit: 65_536, overflow: .dropOldest)
    }

    func publish(_ price: Int, of share: String) throws {
        try updates.send(Array("\(share) \(price)\n".utf8), replacing: share)
    }
}

private func writeLog() throws {
    let log = SendQueue(to: OutputStream(path: "server.log", append: true), overflow: .dropOldest)
    try log.send("listening\n")
}

@MainActor final class Server {
    private var connections: Set<Connection> = []
    private var listener: Listener!
    private let (ends, continuation) = AsyncStream.makeStream(
        of: Void.self, bufferingPolicy: .bufferingNewest(1))

    init(at address: SocketAddress) throws {
        listener = try Listener(address) { [self] _, connection in
            connections.insert(connection)
            connection.open(delegate: Session(of: self))
        }
        try RunLoop.main.add(listener, forMode: .common)
    }

    /// Called by a session that has closed its connection, or whose connection has failed.
    func sessionEnded(_ connection: Connection) {
        connections.remove(connection)
        continuation.yield()
    }

    func run(until shutdown: GracefulShutdown) async throws {
        try await shutdown.waitUntilBegun()
        listener.drain()
        var ends = ends.makeAsyncIterator()
        while !connections.isEmpty, await ends.next() != nil {}  // nil when the grace is over
        for connection in connections { connection.close() }
    }
}

@MainActor final class Session: @MainActor ConnectionDelegate {
    private let server: Server

    init(of server: Server) { self.server = server }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable: _ = connection.receive()
        case .endEncountered:
            connection.close()
            server.sessionEnded(connection)
        case .errorOccurred: server.sessionEnded(connection)
        default: break
        }
    }
}

@MainActor private func serveWithDelegates() async throws {
    let server = try Server(at: .ipv6Any(port: 7007))
    try await RunLoop.main.withGracefulShutdown { shutdown in try await server.run(until: shutdown) }
}

private func serveTheInternet() async throws {
    let options = Listener.Options(
        connection: .init(
            connectTimeout: .seconds(10), idleTimeout: .seconds(90), writeTimeout: .seconds(30),
            sendBufferSize: 65_536, receiveBufferSize: 65_536))
    try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { shutdown in
        try await Listener.run(
            at: .ipv6Any(port: 7007), options: options, limit: 10_000, limitPerPeer: 100,
            acceptErrors: { print($0) }, connectionErrors: { print($0, $1) }
        ) { connection in
            let framer = Framer.delimiter(limit: 16_384)
            for try await request in connection.messages(framer, timeout: .seconds(60), shutdown: shutdown) {
                try await connection.write(await answer(request), timeout: .seconds(30))
            }
        }
    }
}

private func serve(_ connection: Connection, until shutdown: GracefulShutdown) async throws {
    while let line = try await shutdown.cancelWhenBegun({ try await connection.read(until: [10]) }) {
        try await connection.write(line)
    }
}

// MARK: - Signals, keys and child processes

private func awaitSignals() async throws {
    for try await _ in try RunLoop.main.signals([.interrupt, .terminate]) { break }
}

// MARK: - Why is my callback silent?, Debug mode and statistics

private func label(_ listener: Listener, _ input: InputStream, reload: @escaping () -> Void) {
    let refresh = Timer.scheduled(every: .seconds(30), label: "refresh") { _ in reload() }
    listener.label = "admin"
    input.label = "orders"
    print(refresh)
}

private struct Logger {
    func warning(_ text: String) {}
}

private func debug(_ logger: Logger) {
    LoopDiagnostics.isDebugging = true
    LoopDiagnostics.slowCallback = .milliseconds(20)
    LoopDiagnostics.setReportHandler { report in logger.warning("\(report)") }
}

private func compare(_ loop: RunLoop, waitForAMinute: () -> Void) {
    let before = loop.statistics
    waitForAMinute()
    let after = loop.statistics
    print("wake-ups:", after.wakeUps - before.wakeUps)
    print("passes:", after.passes - before.passes)
}

private func printLedger(runForAWhile: () -> Void) {
    LoopDiagnostics.measuresCallbacks = true
    runForAWhile()
    for entry in RunLoop.main.statistics.ledger.prefix(10) {
        print(entry.wakeUps, entry.callbacks, entry.time, entry.longest, entry.name)
    }
}

// MARK: - Streams and their events, lines

private final class Commands: StreamDelegate {
    private var framer = LineFramer(limit: 4096)

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard let input = stream as? InputStream, event == .hasBytesAvailable else { return }
        do {
            _ = try framer.push(input.read(upTo: 4096).span.bytes) { bytes, line in
                print("command \(line.number): \(try line.text(bytes))")
                return .more
            }
        } catch {
            print("\(error)")  // the line is too long
            input.close()
        }
    }
}

// MARK: - Signals-and-processes.md

private func readKeys() async throws {
    try await Terminal().withMode(.cbreak) {
        for try await byte in InputStream(descriptor: .standardInput).bytes {
            print("key \(byte)")
            if byte == UInt8(ascii: "q") { break }
        }
    }
}
