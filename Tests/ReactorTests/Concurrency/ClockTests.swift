import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ClockTests {
    private let home = LoopThread()

    @Test(arguments: TaskPlace.allCases)
    func `a task sleeps, never too short, and wakes where it was`(place: TaskPlace) async throws {
        try await place.run { loop in
            let clock = loop.clock()
            let start = clock.now
            try await clock.sleep(until: start + .milliseconds(2), tolerance: .milliseconds(20))
            #expect(clock.now - start >= .milliseconds(2))
            #expect(loop.isCurrent == (place != .pool))
            try await Task.sleep(for: .milliseconds(1), clock: clock)
            #expect(clock.now - start >= .milliseconds(3))
        }
    }

    @Test func `a deadline that has passed does not suspend`() {
        // Nothing runs this loop, so a suspended task would wait forever.
        let clock = RunLoop.current.clock()
        let isDone = Countdown(1)
        Task {
            try await clock.sleep(until: .now - .seconds(1))
            try await clock.sleep(for: .zero)
            isDone.count()
        }
        isDone.wait()
    }

    @Test(arguments: TaskPlace.allCases)
    func `a cancelled sleep ends at once, with an error`(place: TaskPlace) async throws {
        let (clock, actor) = (home.loop.clock(), TurnTaker())
        let task = place.start(on: home.loop) {
            // The task sleeps where it is, on the actor, or on both.
            if place == .pool {
                return try await actor.perform { try await clock.sleep(for: .seconds(3600)) }
            }
            try await clock.sleep(for: .seconds(3600))
        }
        if place == .pool { await actor.waitUntilSuspended() }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test func `sleeps that are cancelled at any moment all end`() async throws {
        let (resident, clock) = (Resident(home.executor), home.loop.clock())
        for round in 0..<2_000 {
            let task = Task {
                try await resident.perform { try await clock.sleep(for: .microseconds(round % 40)) }
            }
            if round % 2 == 0 { await Task.yield() }
            task.cancel()
            _ = await task.result
        }
    }

    @Test func `a clock of one mode does not wake in another`() {
        let (loop, trace) = (RunLoop.current, Trace())
        loop.hold(.custom)
        let clock = loop.clock(inModes: [.default])
        let deadline = Deadline.now + .milliseconds(10)
        Task(executorPreference: loop.executor(inModes: [.default, .custom])) {
            try await clock.sleep(until: deadline)
            trace("awake")
        }
        loop.run(in: .custom, until: deadline + .milliseconds(2))
        trace("default")
        loop.serve { trace.all.count == 2 }
        #expect(trace.all == ["default", "awake"])
    }

    // MARK: withDeadline

    @Test func `an operation in time has its result or its error, and is isolated as its caller`()
        async throws
    {
        let clock = home.loop.clock()
        #expect(try await clock.withDeadline(.now + .seconds(3600)) { 42 } == 42)
        await #expect(throws: Failure.self) {
            try await clock.withDeadline(.now + .seconds(3600)) { throw Failure() }
        }
        let isIsolated = try await Task { @MainActor in
            var isSet = false
            try await RunLoop.main.clock().withDeadline(.now + .seconds(3600)) {
                MainActor.assertIsolated()
                isSet = true
            }
            return isSet
        }.value
        #expect(isIsolated)
    }

    @Test func `a late operation is cancelled, and its error is that of the deadline`() async throws {
        let clock = home.loop.clock()
        let error = await #expect(throws: RunLoop.Clock.DeadlineError.self) {
            try await clock.withDeadline(.now + .milliseconds(1)) {
                try await clock.sleep(for: .seconds(3600))
            }
        }
        #expect(error?.underlyingError is CancellationError)
        // One that ignores its cancellation still returns its result.
        let value = try await clock.withDeadline(.now + .milliseconds(1)) {
            while !Task.isCancelled { await Task.yield() }
            return 42
        }
        #expect(value == 42)
    }

    @Test func `a cancelled task gets the result of an operation that ignores its cancellation`() async throws
    {
        let clock = home.loop.clock()
        let task = Task {
            try await clock.withDeadline(.now + .seconds(3600)) {
                while !Task.isCancelled { await Task.yield() }
                // The task that waits for the deadline ends first.
                try await Task.detached { try await clock.sleep(for: .milliseconds(1)) }.value
                return 42
            }
        }
        task.cancel()
        #expect(try await task.value == 42)
    }

    @Test func `an operation that is cancelled for another reason is not late`() async throws {
        let thread = try RunLoopThread(name: "ended")
        let ended = thread.runLoop.clock()
        await thread.shutDown()
        await #expect(throws: CancellationError.self) {
            try await ended.withDeadline(.now + .seconds(3600)) {
                while !Task.isCancelled { await Task.yield() }
            }
        }
        let clock = home.loop.clock()
        let task = Task {
            try await clock.withDeadline(.now + .seconds(3600)) { try await clock.sleep(for: .seconds(3600)) }
        }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }
}

private struct Failure: Error {}
