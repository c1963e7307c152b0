// The code of the article "Testing code on a run loop". scripts/check-code compares it with the article.

import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Sends a ping every 30 seconds, and connects again when the connection ends.
final class Client: ConnectionDelegate {
    private(set) var attemptCount = 0
    private let connect: () throws -> Connection
    private var backoff = Backoff()
    private var timer: Timer?

    init(connect: @escaping () throws -> Connection) {
        self.connect = connect
        attempt()
    }

    private func attempt() {
        attemptCount += 1
        guard let connection = try? connect() else { return retry() }
        connection.open(delegate: self)
        timer = Timer.scheduled(every: .seconds(30)) { _ in try? connection.send("ping\n") }
    }

    private func retry() {
        timer?.invalidate()
        timer = Timer.scheduled(after: backoff.nextDelay()) { [weak self] _ in self?.attempt() }
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable:
            backoff.reset()
            print(String(decoding: connection.receive(), as: UTF8.self))
        case .endEncountered, .errorOccurred:
            connection.close()
            retry()
        default: break
        }
    }
}

@Suite(.runLoop) struct ClientTests {
    @Test func `a client tries again, later each time`() {
        withVirtualTime { time in
            let client = Client { throw Errno.connectionRefused }
            time.advance(by: .seconds(1))
            #expect(client.attemptCount >= 2)
            time.advance(by: .seconds(3600))
            #expect((60...240).contains(client.attemptCount))
        }
    }

    @Test func `a client sends a ping every thirty seconds`() throws {
        try withVirtualTime { time in
            let (end, server) = try TestConnection.pair()
            let client = Client { end.connection }
            server.input.open()
            time.advance(by: .seconds(95))
            var bytes = [UInt8](repeating: 0, count: 100)
            let count = server.input.read(&bytes, maxLength: bytes.count)
            #expect(String(decoding: bytes[..<count], as: UTF8.self) == "ping\nping\nping\n")
            #expect(client.attemptCount == 1)
        }
    }
}

/// Calls a handler once files have not changed for a while.
final class Debouncer {
    private var timer: Timer?
    private let watcher: FileWatcher

    init(_ folder: FilePath, quietFor delay: Duration, _ handler: @escaping () -> Void) throws {
        weak var owner: Debouncer?
        watcher = try FileWatcher { _, _ in
            owner?.timer?.invalidate()
            owner?.timer = Timer.scheduled(after: delay) { _ in handler() }
        }
        owner = self
        try watcher.watch(folder)
        try RunLoop.current.add(watcher, forMode: .default)
    }

    deinit { watcher.cancel() }
}

@Suite(.runLoop) struct DebouncerTests {
    @Test func `many changes are one call`() throws {
        let folder = TemporaryFolder()
        try withVirtualTime { time in
            var count = 0
            let debouncer = try Debouncer(folder.path, quietFor: .milliseconds(200)) { count += 1 }
            for name in ["a", "b", "c"] {
                _ = try folder.file([1], name: name)
                time.advance(by: .milliseconds(100))
            }
            #expect(count == 0)
            time.advance(by: .milliseconds(100))
            #expect(count == 1)
            withExtendedLifetime(debouncer) {}
        }
    }
}

@Suite(.runLoop) struct DialogTests {
    @Test func `while a dialog is open a clock runs, and an animation stands still`() {
        withVirtualTime { time in
            var (seconds, frames) = (0, 0)
            let loop = RunLoop.current
            loop.addCommonMode(.modalPanel)
            let clock = Timer.scheduled(every: .seconds(1), forMode: .common) { _ in seconds += 1 }
            let animation = Timer.scheduled(every: .milliseconds(20)) { _ in frames += 1 }
            Timer.scheduled(after: .seconds(10), forMode: .modalPanel) { _ in loop.stop() }
            loop.run(in: .modalPanel)
            #expect((seconds, frames) == (10, 0))
            for timer in [clock, animation] { timer.invalidate() }
        }
    }
}

/// Waits for an answer, for five seconds at most.
func answer(of question: @escaping @Sendable () async throws -> String, on loop: RunLoop) async throws
    -> String
{
    let clock = loop.clock()
    return try await clock.withDeadline(clock.now + .seconds(5)) { try await question() }
}

@Suite(.runLoop) struct AnswerTests {
    @Test func `an answer that takes longer than five seconds is an error`() async {
        await withVirtualTime { time in
            let (start, clock) = (time.now, time.loop.clock())
            await #expect(throws: RunLoop.Clock.DeadlineError.self) {
                try await answer(
                    of: {
                        try await clock.sleep(for: .seconds(6))
                        return "late"
                    }, on: time.loop)
            }
            #expect(start.duration(to: time.now) == .seconds(5))
        }
    }
}

/// An actor that lives on a loop.
actor Poller {
    private let executor: RunLoop.Executor
    private let clock: RunLoop.Clock
    private(set) var count = 0
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(on loop: RunLoop) { (executor, clock) = (loop.executor(), loop.clock()) }

    func poll(times: Int) async throws {
        for _ in 0..<times {
            try await clock.sleep(for: .seconds(60))
            count += 1
        }
    }
}

@Suite(.runLoop) struct PollerTests {
    @Test func `an actor polls once a minute`() async throws {
        try await withVirtualTime { time in
            let poller = Poller(on: time.loop)
            let start = time.now
            try await poller.poll(times: 60)
            #expect(await poller.count == 60)
            #expect(start.duration(to: time.now) == .seconds(3600))
        }
    }
}

// MARK: - The types' documentation

@Suite(.runLoop(timeLimit: .seconds(5))) struct TimerTests {
    @Test func `a timer fires`() {
        var hasFired = false
        Timer.scheduled(after: .milliseconds(1)) { _ in hasFired = true }
        while !hasFired, RunLoop.current.run(mode: .default, before: .distantFuture) {}
        #expect(hasFired)
    }
}

@Suite(.runLoop) struct TypeDocumentationTests {
    @Test func `a timer fires every thirty seconds`() {
        withVirtualTime { time in
            var count = 0
            let timer = Timer.scheduled(every: .seconds(30)) { _ in count += 1 }
            time.advance(by: .seconds(95))
            #expect(count == 3)
            timer.invalidate()
        }
    }

    @Test func `a session's peer is slow, and writes a few bytes at a time`() throws {
        try withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            server.latency = .milliseconds(40)
            server.chunkSizes = 1...7
            let session = Session(client.connection)
            server.output.open()
            let start = time.now
            session.onBytes = { #expect(start.duration(to: time.now) >= .milliseconds(40) && $0 <= 7) }
            #expect(server.output.write("a reply of some bytes") == 21)
            time.runUntilIdle()
            #expect(session.byteCount == 21)
            server.output.close()
        }
    }
}

private final class Session: ConnectionDelegate {
    private(set) var byteCount = 0
    var onBytes: (Int) -> Void = { _ in }

    init(_ connection: Connection) { connection.open(delegate: self) }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        guard case .hasBytesAvailable = event else { return }
        let count = connection.receive(upTo: 100).count
        byteCount += count
        onBytes(count)
    }
}

/// Asks a server, and asks again after a failure, later each time.
func ask(_ host: String, on loop: RunLoop) async throws -> String {
    var backoff = Backoff()
    while true {
        do {
            let connection = try await Connection.connect(toHost: host, port: 7)
            defer { connection.close() }
            try await connection.write("question\n")
            for try await line in connection.lines() { return line }
        } catch is IOError {}
        try await loop.clock().sleep(for: backoff.nextDelay())
    }
}

@Suite(.runLoop(timeLimit: .seconds(60))) struct AskingTests {
    @Test func `a client gets its answer in the end`() async {
        await simulate(seeds: 20) { world in
            world.link.latency = .milliseconds(1) ... .milliseconds(80)
            world.link.chunkSizes = 1...5
            world.faults = World.Faults(all: 0.1)
            let (server, client) = (world.host("echo.example"), world.host("laptop"))
            let connections = try server.run { try world.time.loop.connections(at: .ipv6Any(port: 7)) }
            async let serving: Void = connections.run { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
            world.partition(server, client)
            async let answer = client.run { try await ask("echo.example", on: world.time.loop) }
            try await world.time.advance(by: .seconds(20))
            world.heal()
            let line = try await answer
            #expect(line == "question")
            connections.close()
            try await serving
        }
    }
}

private func startServer(port: UInt16) throws {}
private func startClient(of host: String, port: UInt16) {}

/// The code of ``World``.
func useWorld() throws {
    try withSimulation(seed: 17) { world in
        world.link.latency = .milliseconds(5) ... .milliseconds(80)
        world.faults.resets = 0.01
        let (server, client) = (world.host("chat.example"), world.host("laptop"))
        try server.run { try startServer(port: 7008) }
        client.run { startClient(of: "chat.example", port: 7008) }
        world.time.advance(by: .seconds(10))
        world.partition(server, client)
        world.time.advance(by: .seconds(60))
        world.heal()
        world.time.advance(by: .seconds(10))
    }
}
