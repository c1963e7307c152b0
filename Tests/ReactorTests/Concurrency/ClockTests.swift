import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ClockTests {
    @Test func `a task on the loop sleeps, never too short, and wakes inside the timer's callback`()
        async throws
    {
        try await withRunLoopThread(name: "sleep") { thread in
            let sleeper = Sleeper(thread.runLoop)
            let (slept, isOnLoop) = try await sleeper.sleep(for: .milliseconds(2))
            #expect(slept >= .milliseconds(2))
            #expect(isOnLoop)
        }
    }

    @Test func `a task elsewhere sleeps and wakes where it was`() async throws {
        try await withRunLoopThread(name: "sleep") { thread in
            let clock = thread.runLoop.clock()
            let start = clock.now
            try await clock.sleep(until: start + .milliseconds(2))
            #expect(clock.now - start >= .milliseconds(2))
            #expect(!thread.runLoop.isCurrent)
            try await Task.sleep(for: .milliseconds(1), clock: clock)
            #expect(clock.now - start >= .milliseconds(3))
        }
    }

    @Test @MainActor func `the main actor sleeps on the main loop`() async throws {
        let start = Deadline.now
        try await RunLoop.main.clock().sleep(for: .milliseconds(1), tolerance: .milliseconds(1))
        #expect(Deadline.now - start >= .milliseconds(1))
        #expect(RunLoop.main.isCurrent)
    }

    @Test func `a deadline that has passed does not suspend`() async throws {
        try await onItsOwnThread {
            // Nothing runs this loop, so a suspended task would wait forever.
            let clock = RunLoop.current.clock()
            let isDone = Answer<Void>()
            Task {
                try await clock.sleep(until: .now - .seconds(1))
                try await clock.sleep(for: .zero)
                isDone.give(())
            }
            isDone.wait()
        }
    }

    @Test(arguments: [true, false])
    func `a cancelled sleep ends at once, with an error`(isOnLoop: Bool) async throws {
        try await withRunLoopThread(name: "cancelled") { thread in
            let sleeper = Sleeper(thread.runLoop)
            let clock = thread.runLoop.clock()
            let isAsleep = Shared(false)
            let task = Task {
                isAsleep.value = true
                if isOnLoop { _ = try await sleeper.sleep(for: .seconds(3600)) }
                try await clock.sleep(for: .seconds(3600))
            }
            await yieldUntil { isAsleep.value }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
    }

    @Test func `sleeps that are cancelled at any moment all end`() async throws {
        try await withRunLoopThread(name: "races") { thread in
            let sleeper = Sleeper(thread.runLoop)
            for round in 0..<2_000 {
                let task = Task { try await sleeper.sleep(for: .microseconds(round % 40)) }
                if round % 2 == 0 { await Task.yield() }
                task.cancel()
                _ = await task.result
            }
        }
    }

    @Test func `a clock of one mode does not wake in another`() async throws {
        let events = try await traced { loop, trace in
            loop.hold(.custom)
            let clock = loop.clock(inModes: [.default])
            let deadline = Deadline.now + .milliseconds(50)
            Task(executorPreference: loop.executor(inModes: [.default, .custom])) {
                try await clock.sleep(until: deadline)
                trace("awake")
            }
            loop.run(in: .custom, until: deadline + .milliseconds(2))
            trace("default")
            loop.run(in: .default, until: .minutesAway)
            loop.poll(.default)
        }
        #expect(events == ["default", "awake"])
    }
}

@Suite(.runLoop) struct WithDeadlineTests {
    @Test func `an operation in time has its result`() async throws {
        try await withRunLoopThread(name: "in time") { thread in
            let clock = thread.runLoop.clock()
            let value = try await withDeadline(.now + .seconds(3600), clock: clock) { 42 }
            #expect(value == 42)
            await #expect(throws: Failure.self) {
                try await withDeadline(.now + .seconds(3600), clock: clock) { throw Failure() }
            }
        }
    }

    @Test func `a late operation is cancelled, and its error is that of the deadline`() async throws {
        try await withRunLoopThread(name: "late") { thread in
            let clock = thread.runLoop.clock()
            let error = await #expect(throws: DeadlineError.self) {
                try await withDeadline(.now + .milliseconds(1), clock: clock) {
                    try await clock.sleep(for: .seconds(3600))
                }
            }
            #expect(error?.underlying is CancellationError)
        }
    }

    @Test func `an operation that ignores cancellation still returns its result`() async throws {
        let value = try await withDeadline(.now + .milliseconds(1)) {
            while !Task.isCancelled { await Task.yield() }
            return 42
        }
        #expect(value == 42)
    }

    @Test func `a clock that fails cancels the operation, and its error is thrown`() async throws {
        await #expect(throws: Failure.self) {
            try await withDeadline(.now + .seconds(3600), clock: FailingClock()) {
                while !Task.isCancelled { await Task.yield() }
            }
        }
    }

    @Test func `an operation that is cancelled from outside is not late`() async throws {
        let task = Task {
            try await withDeadline(.now + .seconds(3600), clock: .continuous) {
                try await Task.sleep(for: .seconds(3600))
            }
        }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test @MainActor func `an operation has the isolation of its caller`() async throws {
        var isSet = false
        try await withDeadline(.now + .seconds(3600), clock: RunLoop.main.clock()) {
            MainActor.assertIsolated()
            isSet = true
        }
        #expect(isSet)
    }
}

private struct Failure: Error {}

/// A clock whose sleeps fail.
private struct FailingClock: Clock {
    var now: Deadline { .now }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: Deadline, tolerance: Duration?) async throws { throw Failure() }
}

/// An actor of a loop that sleeps on it.
private actor Sleeper {
    private let loop: RunLoop
    private let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(_ loop: RunLoop) { (self.loop, executor) = (loop, loop.executor()) }

    @discardableResult
    func sleep(for duration: Duration) async throws -> (Duration, isOnLoop: Bool) {
        let start = Deadline.now
        try await loop.clock().sleep(for: duration)
        return (Deadline.now - start, loop.isCurrent)
    }
}
