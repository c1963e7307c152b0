import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct EventsTests {
    // MARK: Ticks

    @Test func `ticks keep their phase, and a task on the loop takes them there`() async throws {
        try await withRunLoopThread(name: "ticks") { thread in
            let loop = thread.runLoop
            let dates = try await loop.onActor { _ in
                var dates: [Deadline] = []
                for await date in loop.ticks(every: .milliseconds(1)) {
                    #expect(loop.isCurrent)
                    #expect(date <= .now)
                    dates.append(date)
                    if dates.count == 5 { break }
                }
                return dates
            }
            for (earlier, later) in zip(dates, dates.dropFirst()) {
                #expect((later - earlier).isMultiple(of: .milliseconds(1)))
                #expect(later > earlier)
            }
        }
    }

    @Test func `a task on another executor receives ticks without changing executor`() async throws {
        try await withRunLoopThread(name: "ticks") { thread in
            var count = 0
            for await _ in thread.runLoop.ticks(every: .microseconds(200)) {
                #expect(!thread.runLoop.isCurrent)
                count += 1
                if count == 20 { break }
            }
            #expect(count == 20)
        }
    }

    @Test func `ticks that are not awaited are one, the latest`() async throws {
        try await withRunLoopThread(name: "ticks") { thread in
            let loop = thread.runLoop
            try await loop.onActor { _ in
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
    }

    @Test @MainActor func `the main actor takes ticks of the main loop`() async {
        var count = 0
        for await _ in RunLoop.main.ticks(every: .microseconds(200)) {
            MainActor.assertIsolated()
            count += 1
            if count == 3 { break }
        }
        #expect(count == 3)
    }

    // MARK: The end

    @Test func `another iteration goes on where one was left`() async throws {
        try await withRunLoopThread(name: "again") { thread in
            let ticks = thread.runLoop.ticks(every: .microseconds(200))
            var dates: [Deadline] = []
            for _ in 0..<3 {
                for await date in ticks {
                    dates.append(date)
                    break
                }
            }
            #expect(dates == dates.sorted())
            #expect(dates.count == 3)
        }
    }

    @Test(arguments: [true, false])
    func `cancelling the task ends the sequence, and releases its source`(isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "cancelled") { thread in
            let loop = thread.runLoop
            let isWaiting = Shared(false)
            let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                loop.perform { isWaiting.value = true }
                for await _ in loop.ticks(every: .seconds(3600), inModes: [.custom]) { return false }
                return Task.isCancelled
            }
            await yieldUntil { isWaiting.value }
            task.cancel()
            #expect(await task.value)
            let isEmpty = try await loop.onActor { _ in loop.pollNow(.custom) == .finished }
            #expect(isEmpty)
        }
    }

    @Test func `cancelling a task that waits for ticks ends it although the loop does not run`() async throws
    {
        try await endsWithoutLoop { $0.ticks(every: .seconds(3600)) }
    }

    @Test func `cancelling a task that waits for signals ends it although the loop does not run`()
        async throws
    {
        try await endsWithoutLoop { try $0.signals(SIGURG) }
    }

    @Test func `a cancelled task leaves an event that it has not received to the next iteration`()
        async throws
    {
        try await withRunLoopThread(name: "kept") { thread in
            let loop = thread.runLoop
            try await loop.onActor { _ in
                let ticks = loop.ticks(every: .milliseconds(100))
                // The first tick is due before the sleep ends.
                try await loop.clock().sleep(for: .milliseconds(101))
                let task = Task {
                    await yieldUntil { Task.isCancelled }
                    for await _ in ticks { return false }
                    return true
                }
                task.cancel()
                #expect(await task.value)
                let kept = await ticks.makeAsyncIterator().next()
                #expect(kept != nil)
            }
        }
    }

    @Test func `a sequence that is released ends its source`() async throws {
        try await withRunLoopThread(name: "released") { thread in
            let loop = thread.runLoop
            let pipe = try TestPipe()
            for await _ in loop.ticks(every: .microseconds(100), inModes: [.default, .custom]) { break }
            pipe.put()
            for try await _ in loop.readiness(of: pipe.readEnd, for: .readable, inModes: [.default, .custom])
            {
                break
            }
            _ = loop.ticks(every: .seconds(3600), inModes: [.custom])
            let isEmpty = try await loop.onActor { _ in loop.pollNow(.custom) == .finished }
            #expect(isEmpty)
        }
    }

    @Test func `a sequence ends with its loop's thread`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let ticks = thread.runLoop.ticks(every: .seconds(3600))
        let isWaiting = Shared(false)
        let task = Task {
            isWaiting.value = true
            for await _ in ticks { return false }
            return !Task.isCancelled
        }
        await yieldUntil { isWaiting.value }
        try await onItsOwnThread { thread.stop() }
        #expect(await task.value)
        for await _ in thread.runLoop.ticks(every: .seconds(1)) { Issue.record("a tick of an ended loop") }
    }

    @Test func `a second consumer traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "two")
            let ticks = thread.runLoop.ticks(every: .microseconds(100))
            await withTaskGroup { group in
                for _ in 0..<2 { group.addTask { for await _ in ticks {} } }
            }
        }
        #expect(result.message.contains("Two tasks iterate over the same events"))
    }

    @Test func `tasks that are cancelled at any moment all end`() async throws {
        try await withRunLoopThread(name: "races") { thread in
            let loop = thread.runLoop
            for round in 0..<1_000 {
                let task = Task(executorPreference: round % 2 == 0 ? loop.executor() : nil) {
                    for await _ in loop.ticks(every: .microseconds(100)) {}
                }
                for _ in 0..<round % 4 { await Task.yield() }
                task.cancel()
                await task.value
            }
        }
    }

    // MARK: Sequences that another thread makes during a job of the loop

    @Test func `a task of the loop waits for a sequence that another thread has just made`() async throws {
        try await withRunLoopThread(name: "made elsewhere") { thread in
            let loop = thread.runLoop
            try await loop.onActor { _ in
                let pipe = try TestPipe()
                pipe.put()
                let events = try madeElsewhere { loop.readiness(of: pipe.readEnd, for: .readable) }
                for try await _ in events { break }
            }
        }
    }

    @Test @MainActor func `the main actor waits for a sequence that another thread has just made`()
        async throws
    {
        let pipe = try TestPipe()
        pipe.put()
        let events = try madeElsewhere { RunLoop.main.readiness(of: pipe.readEnd, for: .readable) }
        for try await _ in events { break }
    }

    @Test func `a sequence that is released before the loop has started its source leaves none`() async throws
    {
        try await withRunLoopThread(name: "never started") { thread in
            let loop = thread.runLoop
            try await loop.onActor { _ in
                _ = try madeElsewhere { loop.ticks(every: .seconds(3600), inModes: [.custom]) }
            }
            let isEmpty = try await loop.onActor { _ in loop.pollNow(.custom) == .finished }
            #expect(isEmpty)
        }
    }

    @Test func `signals that are released before the loop has started their source are not caught`() async {
        await #expect(processExitsWith: .signal(SIGTERM)) {
            let thread = try RunLoopThread(name: "never started")
            let loop = thread.runLoop
            try await loop.onActor { _ in _ = try madeElsewhere { try loop.signals(SIGTERM) } }
            loop.performAndWait {}
            deliver(SIGTERM)
        }
    }

    // MARK: Signals

    @Test func `signals come to the task, and their actions are restored`() async {
        await #expect(processExitsWith: .signal(SIGTERM)) {
            let thread = try RunLoopThread(name: "signals")
            let events = try thread.runLoop.signals(SIGTERM, SIGUSR1)
            var signals: [CInt] = []
            deliver(SIGUSR1)
            for try await signal in events {
                signals.append(signal)
                if signals.count == 3 { break }
                deliver(signals.count == 1 ? SIGTERM : SIGUSR1)
            }
            #expect(signals == [SIGUSR1, SIGTERM, SIGUSR1])
            end(consume events, of: thread)
            deliver(SIGTERM)
        }
    }

    @Test func `a signal that cannot be caught is refused`() async throws {
        #expect(throws: IOError(.watch, "signal 9", .invalidArgument)) { try RunLoop.main.signals(SIGKILL) }
    }

    // MARK: Descriptors

    @Test(arguments: [true, false])
    func `a task reads a descriptor whenever it is ready`(isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "reads") { thread in
            let loop = thread.runLoop
            let pipe = try TestPipe()
            let task = Task(executorPreference: isOnLoop ? loop.executor() : nil) {
                var count = 0
                pipe.put()
                for try await readiness in loop.readiness(of: pipe.readEnd, for: .readable) {
                    #expect(readiness.contains(.readable))
                    #expect(loop.isCurrent == isOnLoop)
                    pipe.get()
                    count += 1
                    if count == 100 { break }
                    pipe.put()
                }
                return count
            }
            let count = try await task.value
            #expect(count == 100)
        }
    }

    @Test func `a descriptor that is ready and not awaited does not keep the loop busy`() async throws {
        try await withRunLoopThread(name: "idle") { thread in
            let loop = thread.runLoop
            let passes = Shared(0)
            loop.perform { loop.observe(.beforeTimers) { _ in passes.update { $0 += 1 } } }
            let pipe = try TestPipe()
            let events = loop.readiness(of: pipe.readEnd, for: .readable).makeAsyncIterator()
            pipe.put(2)
            _ = try await events.next()
            await yieldUntil { loop.isWaiting }
            for _ in 0..<1_000 { await Task.yield() }
            #expect(passes.value < 20)
            // It is still ready.
            let readiness = try await events.next()
            #expect(readiness == .readable)
        }
    }

    @Test func `a file that cannot be watched is an error of the sequence, which ends with it`() async throws
    {
        try await withRunLoopThread(name: "file") { thread in
            let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
            defer { try? file.close() }
            let events = thread.runLoop.readiness(of: file, for: .readable).makeAsyncIterator()
            let error = await thrownError { _ = try await events.next() }
            #expect(error as? IOError == IOError(.watch, "descriptor \(file.rawValue)", .notPermitted))
            let next = try await events.next()
            #expect(next == nil)
        }
    }
}

extension RunLoop {
    /// Polls `mode` once, in a synchronous frame of asynchronous code.
    fileprivate func pollNow(_ mode: Mode) -> RunResult { poll(mode) }
}

/// Cancels a task that iterates over the events of a loop that does not run, and waits for its end.
private func endsWithoutLoop<Failure: Error>(
    _ makeEvents: @escaping @Sendable (RunLoop) throws -> RunLoop.Events<some Sendable, Failure>
) async throws {
    try await onItsOwnThread {
        let events = try makeEvents(.current)
        let isDone = Answer<Bool>()
        let task = Task {
            do { for try await _ in events { return isDone.give(false) } } catch {
                return isDone.give(error is CancellationError)
            }
            isDone.give(Failure.self == Never.self)
        }
        task.cancel()
        #expect(isDone.wait())
    }
}

/// Releases `events`, and waits for the loop's next pass.
private func end(_ events: consuming RunLoop.Events<CInt, any Error>, of thread: RunLoopThread) {
    _ = consume events
    thread.runLoop.performAndWait {}
}
