import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamTaskModeTests {
    @Test(arguments: [true, false])
    func `a task waits for a stream while the loop runs in another mode`(isScheduled: Bool) async throws {
        let texts = try await onItsOwnThread {
            let loop = RunLoop.current
            for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
            let feed = try Feed()
            let (trace, isReading) = (Trace(), Shared(false))
            // The modes are those of the stream, if it is scheduled, and otherwise those of the task.
            let executor = isScheduled ? loop.executor() : loop.executor(inModes: [.custom])
            let task = Task(executorPreference: executor) {
                let input = feed.makeStream()
                if isScheduled { input.schedule(in: loop, forMode: .custom) }
                isReading.value = true
                for try await chunk in input.chunks { trace(String(bytes: chunk)) }
                trace("end")
            }
            loop.serve(in: isScheduled ? .default : .custom) { isReading.value }
            feed.put("a")
            loop.poll(.default, passes: 50)
            #expect(trace.all == [])
            loop.serve(in: .custom) { !trace.all.isEmpty }
            // A nested run in the stream's mode serves it; one in another mode does not.
            loop.performAsSource {
                feed.put("b")
                loop.poll(.tracking, passes: 50)
                #expect(trace.all == ["a"])
                loop.serve(in: .custom) { trace.all.count == 2 }
            }
            loop.serve(in: .default) { trace.all.count == 2 }
            feed.end()
            loop.serve(in: .custom) { trace.all.last == "end" }
            _ = task
            return trace.all
        }
        #expect(texts == ["a", "b", "end"])
    }

    @Test(arguments: [true, false])
    func `a timeout passes in the modes of the stream`(isOnLoop: Bool) async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
            let feed = try Feed()
            let (isReading, error) = (Shared(false), Shared<(any Error)?>(nil))
            _ = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                let input = feed.makeStream()
                input.schedule(in: loop, forMode: .custom)
                isReading.value = true
                loop.performAsSource {}
                error.value = await thrownError {
                    _ = try await input.read(exactly: 1, timeout: .milliseconds(50))
                }
                loop.performAsSource(inModes: [.custom]) {}
            }
            loop.serve(in: .default) { isReading.value }
            loop.poll(.default, passes: 50)
            loop.serve(in: .custom) { error.value != nil }
            #expect(error.value?.errno == .timedOut)
        }
    }

    @Test(arguments: [true, false])
    func `a stream that is handed off is served in its modes`(isOnLoop: Bool) async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
            let feed = try Feed("abc")
            feed.end()
            let (count, isCalled) = (Shared<Int?>(nil), Shared(false))
            _ = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                let input = feed.makeStream()
                input.schedule(in: loop, forMode: .custom)
                isCalled.value = true
                loop.performAsSource {}
                let queue = DispatchQueue(label: "bytes")
                count.value = try await input.handOff(to: Ignoring(), on: queue).byteCount
                loop.performAsSource(inModes: [.custom]) {}
            }
            loop.serve(in: .default) { isCalled.value }
            loop.poll(.default, passes: 50)
            #expect(count.value == nil)
            loop.serve(in: .custom) { count.value != nil }
            #expect(count.value == 3)
        }
    }

    @Test func `an actor that computes its executor waits for a stream`() async throws {
        try await withRunLoopThread(name: "computed") { thread in
            let reader = Computing(thread)
            let feed = try Feed()
            let error = await thrownError { _ = try await reader.read(feed, timeout: .milliseconds(1)) }
            #expect(error?.errno == .timedOut)
        }
    }

    @Test func `a task that waits goes on when its stream is scheduled on another loop`() async throws {
        try await withRunLoopThread(name: "first") { first in
            try await withRunLoopThread(name: "second") { second in
                let feed = try Feed()
                let input = Carrier(feed.makeStream())
                let isReading = Shared(false)
                let task = Task(executorPreference: first.executor) {
                    isReading.value = true
                    return try await input.value.read(exactly: 3)
                }
                await yieldUntil { isReading.value && input.value.streamStatus == .open }
                input.value.schedule(in: second.runLoop, forMode: .default)
                feed.put("abc")
                let bytes = try await task.value
                #expect(bytes == Array("abc".utf8))
                input.value.close()
            }
        }
    }

    @Test func `a task elsewhere goes on when the loop of its stream has ended`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let feed = try Feed("a")
        let input = Carrier(feed.makeStream())
        input.value.schedule(in: thread.runLoop, forMode: .default)
        let task = Task { try await input.value.read(exactly: 2) }
        await yieldUntil { feed.isEmpty }
        try await onItsOwnThread { thread.stop() }
        feed.put("b")
        let bytes = try await task.value
        #expect(bytes == Array("ab".utf8))
    }

    @Test func `a deadline ends a read after the loop of its stream has ended`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let input = Carrier(try Feed().makeStream())
        input.value.schedule(in: thread.runLoop, forMode: .default)
        let actor = TurnTaker()
        let task = Task {
            try await actor.perform { _ in try await input.value.read(exactly: 1, timeout: .milliseconds(300))
            }
        }
        await actor.waitUntilSuspended()
        try await onItsOwnThread { thread.stop() }
        let error = await thrownError { _ = try await task.value }
        #expect(error?.errno == .timedOut)
    }

    @Test func `a wait for sent bytes ends after the loop of its stream has ended`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let (peer, other) = try SocketPeer.pair()
        let output = Carrier(Stream.connection(descriptor: other, closeWhenDone: true).output)
        output.value.writeBufferSize = 4_000_000
        output.value.schedule(in: thread.runLoop, forMode: .default)
        try await output.value.writeAll(pattern(2_000_000))
        let actor = TurnTaker()
        let task = Task { try await actor.perform { _ in try await output.value.flush() } }
        await actor.waitUntilSuspended()
        try await onItsOwnThread { thread.stop() }
        let carrier = Carrier(peer)
        _ = try JoinableThread { _ = carrier.value.receiveToEnd() }
        try await task.value
        output.value.close()
    }

    @Test(arguments: [false, true])
    func `a task that waits goes on when its stream loses its loop or its queue`(isQueue: Bool) async throws {
        try await withRunLoopThread(name: "first") { thread in
            let feed = try Feed()
            let input = Carrier(feed.makeStream())
            if isQueue {
                input.value.setDispatchQueue(DispatchQueue(label: "events"))
            } else {
                input.value.schedule(in: thread.runLoop, forMode: .default)
            }
            let actor = TurnTaker()
            let task = Task { try await actor.perform { _ in try await input.value.read(exactly: 1) } }
            await actor.waitUntilSuspended()
            if isQueue {
                input.value.setDispatchQueue(nil)
            } else {
                input.value.remove(from: thread.runLoop, forMode: .default)
            }
            feed.put("a")
            let bytes = try await task.value
            #expect(bytes == Array("a".utf8))
            input.value.close()
        }
    }

    @Test func `a stream that no task uses does not keep its loop busy`() async throws {
        try await withRunLoopThread(name: "idle") { thread in
            let loop = thread.runLoop
            let passes = Shared(0)
            loop.perform { loop.observe(.beforeTimers) { _ in passes.update { $0 += 1 } } }
            let feed = try Feed("abc")
            let input = Carrier(feed.makeStream())
            _ = try await Task(executorPreference: thread.executor) {
                try await input.value.read(exactly: 1, timeout: .seconds(60))
            }.value
            feed.put("def")
            await yieldUntil { loop.isWaiting }
            let before = passes.value
            for _ in 0..<1_000 { await Task.yield() }
            #expect(passes.value < before + 20)
            #expect(try await input.value.read(exactly: 5) == Array("bcdef".utf8))
            input.value.close()
        }
    }
}

/// Processes nothing.
private struct Ignoring: ChunkProcessor {
    let output = 0
    mutating func process(_ chunk: RawSpan) {}
}

/// An actor of no loop.
private actor TurnTaker {
    private var hasBegun = false

    func perform<Result: Sendable>(
        _ body: @Sendable (isolated TurnTaker) async throws -> Result
    ) async throws -> Result {
        hasBegun = true
        return try await body(self)
    }

    private func isSuspended() -> Bool { hasBegun }

    /// Waits until the body has begun, and has suspended: before that the actor takes no other call.
    nonisolated func waitUntilSuspended() async {
        while !(await isSuspended()) { await Task.yield() }
    }
}

/// An actor that asks its loop for the executor whenever the runtime asks for it.
private actor Computing {
    private let thread: RunLoopThread
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        thread.runLoop.executor().asUnownedSerialExecutor()
    }

    init(_ thread: RunLoopThread) { self.thread = thread }

    func read(_ feed: Feed, timeout: Duration) async throws -> [UInt8] {
        let input = feed.makeStream()
        defer { input.close() }
        return try await input.read(exactly: 3, timeout: timeout)
    }
}
