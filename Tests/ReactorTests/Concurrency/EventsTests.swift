import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.runLoop) struct EventsTests {
    private let home = LoopThread()
    private var loop: RunLoop { home.loop }

    // MARK: Sequences of every kind

    @Test(arguments: EventKind.withEvents, [TaskPlace.loopPreference, .pool, .mainActor])
    func `a task takes events where it is, in one iteration after the other, and releases their source`(
        kind: EventKind, place: TaskPlace
    ) async throws {
        let loop = place == .mainActor ? .main : home.loop
        try await place.start(on: loop) {
            let fixture = try EventFixture(kind, on: loop, inModes: [.common, .custom])
            for _ in 0..<20 {
                try fixture.cause()
                #expect(try await fixture.next())
                #expect(loop.isCurrent == (place != .pool))
            }
        }.value
        if place != .mainActor { #expect(await home.isFinished(.custom)) }
    }

    @Test(arguments: EventKind.allCases, [true, false])
    func `cancelling a task that waits ends its iteration, and the source unless that is a socket`(
        kind: EventKind, isOnLoop: Bool
    ) async throws {
        let (loop, isWaiting) = (home.loop, Countdown(1))
        let fixture = try EventFixture(kind, on: loop, inModes: [.custom], isIdle: true)
        let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
            loop.perform { isWaiting.count() }
            return try await fixture.next()
        }
        isWaiting.wait()
        task.cancel()
        #expect(await task.result.isCancelled(kind))
        let isSocket = EventKind.ofSockets.contains(kind)
        #expect(await home.isFinished(.custom) == !isSocket)
    }

    @Test(arguments: [EventKind.ticks, .signals, .files, .clock])
    func `cancelling a task that waits ends it although the loop does not run`(kind: EventKind) throws {
        let fixture = try EventFixture(kind, on: .current, isIdle: true)
        let result = Answer<Result<Bool, any Error>>()
        let task = Task { try await fixture.next() }
        Task { result.give(await task.result) }
        task.cancel()
        #expect(result.wait().isCancelled(kind))
    }

    @Test(arguments: EventKind.withEvents)
    func `a task waits while the loop runs in another mode`(kind: EventKind) throws {
        let loop = RunLoop.current
        for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
        let fixture = try EventFixture(kind, on: loop, inModes: [.custom])
        let isOver = Shared(false)
        Task(executorPreference: loop.executor()) { isOver.value = try await fixture.next() }
        loop.poll(.default, passes: 5)
        try fixture.cause()
        loop.run(in: .default, until: .now + .milliseconds(2))
        #expect(!isOver.value)
        while !isOver.value { for mode in [RunLoop.Mode.custom, .default] { loop.poll(mode) } }
    }

    @Test(arguments: EventKind.withEvents, [TaskPlace.loopActor, .mainActor])
    func `a task of the loop waits for a sequence that another thread has just made`(
        kind: EventKind, place: TaskPlace
    ) async throws {
        try await place.run { loop in
            let fixture = try madeElsewhere { try EventFixture(kind, on: loop) }
            // The task waits before the event comes.
            loop.perform { try? fixture.cause() }
            #expect(try await fixture.next())
        }
    }

    @Test(arguments: EventKind.allCases)
    func `a sequence that is released before the loop has started its source leaves none`(
        kind: EventKind
    ) async throws {
        let loop = home.loop
        try await loop.onActor {
            _ = try madeElsewhere { try EventFixture(kind, on: loop, inModes: [.custom]) }
        }
        #expect(await home.isFinished(.custom))
    }

    @Test func `any number of sequences can be made while the loop is busy`() async {
        await #expect(processExitsWith: .success) {
            let (thread, pipe) = (try RunLoopThread(name: "busy"), try TestPipe())
            let (isBusy, mayContinue) = (Countdown(1), Countdown(1))
            thread.runLoop.perform {
                isBusy.count()
                mayContinue.wait()
            }
            isBusy.wait()
            let sequences = (0..<20_000).map { _ in thread.runLoop.readiness(of: pipe.readEnd, for: .readable)
            }
            mayContinue.count()
            pipe.put()
            for sequence in [sequences.first!, sequences.last!] {
                #expect(try await sequence.makeAsyncIterator().next() == .readable)
            }
        }
    }

    @Test func `tasks that are cancelled at any moment all end`() async throws {
        let loop = home.loop
        for round in 0..<1_000 {
            let task = Task(executorPreference: round % 2 == 0 ? loop.executor() : nil) {
                for await _ in loop.ticks(every: .microseconds(100)) {}
            }
            for _ in 0..<round % 4 { await Task.yield() }
            task.cancel()
            await task.value
        }
    }

    @Test(arguments: [EventKind.ticks, .connections, .datagrams])
    func `a second task that iterates traps`(kind: EventKind) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind] in
            let thread = try RunLoopThread(name: "two")
            let fixture = try EventFixture(kind, on: thread.runLoop, isIdle: true)
            try await withThrowingTaskGroup { group in
                for _ in 0..<2 { group.addTask { _ = try await fixture.next() } }
                try await group.waitForAll()
            }
        }
        #expect(result.message.contains("Two tasks"))
    }

    // MARK: Ticks

    @Test func `ticks that are not awaited are one, the latest`() async throws {
        let loop = home.loop
        try await loop.onActor {
            let ticks = loop.ticks(every: .microseconds(100)).makeAsyncIterator()
            let end = Deadline.now + .milliseconds(3)
            // The loop runs, and this task awaits something else.
            try await loop.clock().sleep(until: end)
            let dates = [await ticks.next()!, await ticks.next()!, await ticks.next()!]
            #expect(dates == dates.sorted())
            // The second fires after the first is taken, so the third is dated later than that.
            #expect(dates[2] > end)
        }
    }

    @Test func `a cancelled task leaves an event that it has not received to the next iteration`()
        async throws
    {
        let loop = home.loop
        try await loop.onActor {
            let ticks = loop.ticks(every: .milliseconds(1))
            // Fires after the first tick, as it is scheduled once the source has started.
            let hasTicked = Atomic(false)
            loop.perform {
                Timer.scheduled(after: .milliseconds(2)) { _ in hasTicked.store(true, ordering: .relaxed) }
            }
            await yieldUntil { hasTicked.load(ordering: .relaxed) }
            let task = Task {
                await yieldUntil { Task.isCancelled }
                for await _ in ticks { return false }
                return true
            }
            task.cancel()
            #expect(await task.value)
            #expect(await ticks.makeAsyncIterator().next() != nil)
        }
    }

    // MARK: Signals and descriptors

    @Test func `signals come to the task, and their actions are restored`() async {
        await #expect(processExitsWith: .signal(SIGTERM)) {
            let thread = try RunLoopThread(name: "signals")
            let events = try thread.runLoop.signals([.terminate, .userDefinedOne])
            var signals: [Signal] = []
            deliver(SIGUSR1)
            for try await signal in events {
                signals.append(signal)
                if signals.count == 3 { break }
                deliver(signals.count == 1 ? SIGTERM : SIGUSR1)
            }
            #expect(signals == [.userDefinedOne, .terminate, .userDefinedOne])
            end(consume events, of: thread)
            deliver(SIGTERM)
        }
    }

    @Test func `signals that come while none is awaited are one each`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "signals")
            let events = try thread.runLoop.signals([.terminate, .userDefinedOne, .userDefinedTwo])
            for signal in [.terminate, .userDefinedOne, .terminate] as [Signal] {
                try deliver(signal, to: thread)
            }
            deliver(SIGUSR2)
            var signals: [Signal] = []
            for try await signal in events {
                signals.append(signal)
                if signal == .userDefinedTwo { break }
            }
            #expect(signals == [.terminate, .userDefinedOne, .userDefinedTwo])
            await thread.shutDown()
        }
    }

    @Test func `what cannot be watched is an error of the sequence, which ends with it`() async throws {
        #expect(throws: IOError(.watch, "SIGKILL", .invalidArgument)) { try loop.signals([.kill]) }
        let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
        defer { try? file.close() }
        let events = loop.readiness(of: file, for: .readable).makeAsyncIterator()
        let error = await thrownError { _ = try await events.next() }
        #expect(error as? IOError == IOError(.watch, "descriptor \(file.rawValue)", .notPermitted))
        #expect(try await events.next() == nil)
    }

    @Test func `a descriptor that is ready and not awaited does not keep the loop busy`() async throws {
        let (loop, passes, pipe) = (home.loop, Shared(0), try TestPipe())
        loop.perform { loop.observe(.beforeTimers) { _ in passes.update { $0 += 1 } } }
        let events = loop.readiness(of: pipe.readEnd, for: .readable).makeAsyncIterator()
        pipe.put(2)
        _ = try await events.next()
        await yieldUntil { loop.isWaiting }
        for _ in 0..<1_000 { await Task.yield() }
        #expect(passes.value < 20)
        // It is still ready.
        #expect(try await events.next() == .readable)
    }
}

extension LoopThread {
    /// Whether `mode` is empty.
    fileprivate func isFinished(_ mode: RunLoop.Mode) async -> Bool {
        await Resident(executor).poll(mode) == .finished
    }
}

extension Resident {
    /// Polls the loop, on its thread.
    fileprivate func poll(_ mode: RunLoop.Mode) -> RunLoop.RunResult { RunLoop.current.poll(mode) }
}

extension Result<Bool, any Error> {
    /// Whether this is what a cancelled iteration returns or throws.
    fileprivate func isCancelled(_ kind: EventKind) -> Bool {
        switch self {
        case .success(let hasEvent): kind == .ticks && !hasEvent
        case .failure(let error): error is CancellationError
        }
    }
}

/// Sends a signal, and returns when the thread's loop has served it.
private func deliver(_ signal: Signal, to thread: RunLoopThread) throws {
    let received = Shared(false)
    let witness = try thread.runLoop.performAndWait {
        let source = try SignalSource(signal) { _, _ in received.value = true }
        try RunLoop.current.add(source, forMode: .default)
        return Carrier(source)
    }
    deliver(signal.rawValue)
    waitUntil { received.value }
    // After the pass that has served the signal.
    for _ in 0..<2 { thread.runLoop.performAndWait { witness.value.cancel() } }
}

/// Releases `events`, and waits for the loop's next pass.
private func end(_ events: consuming RunLoop.Events<Signal, any Error>, of thread: RunLoopThread) {
    _ = consume events
    thread.runLoop.performAndWait {}
}
