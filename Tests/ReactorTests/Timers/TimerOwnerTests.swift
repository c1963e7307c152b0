import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Timers that leave their loop, and where their closures are destroyed.
@Suite(.runLoop) struct TimerOwnerTests {
    private let loop = RunLoop.current

    /// A timer whose closure belongs to `owner`, in its loop or in none; reports where the closure was destroyed.
    private static func makeTimer(
        of owner: RunLoop, isRemoved: Bool, _ destroyed: Answer<Bool>
    ) -> Timer {
        owner.performAndWait {
            let canary = AtEnd { destroyed.give(owner.isCurrent) }
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            if isRemoved { owner.remove(timer, forMode: .default) }
            return timer
        }
    }

    // MARK: Closures of a thread

    @Test(arguments: [true, false], ["invalidated", "invalidated on a loop's thread", "released"])
    func `a closure is destroyed on its owner's thread, wherever its timer ends`(isRemoved: Bool, how: String)
        throws
    {
        let (owner, other) = (try RunLoopThread(name: "owner"), try RunLoopThread(name: "other"))
        let destroyed = Answer<Bool>()
        let timer = Shared<Timer?>(Self.makeTimer(of: owner.runLoop, isRemoved: isRemoved, destroyed))
        switch how {
        case "invalidated": timer.value?.invalidate()
        case "released" where isRemoved: break
        default: other.runLoop.performAndWait { timer.value?.invalidate() }
        }
        timer.value = nil
        #expect(destroyed.wait())
        for thread in [other, owner] { thread.stop() }
    }

    @Test func `closures released while their owner's loop is busy with them are destroyed on its thread`()
        throws
    {
        let owner = try RunLoopThread(name: "owner")
        let away = Shared(0)
        let left = Countdown(1_000)
        let timers = owner.runLoop.performAndWait { [loop = owner.runLoop] in
            (0..<1_000).map { _ in
                let canary = AtEnd {
                    if !loop.isCurrent { away.update { $0 += 1 } }
                    left.count()
                }
                return Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            }
        }
        for timer in timers { timer.invalidate() }
        left.wait()
        #expect(away.value == 0)
        owner.stop()
    }

    @Test func `a closure that is released while its owner's loop ends is destroyed on that thread`() throws {
        let destroyed = Answer<Bool>()
        try onAThread {
            let owner = pthread_self()
            let canary = AtEnd { destroyed.give(pthread_self() == owner) }
            let removed = Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            RunLoop.current.remove(removed, forMode: .default)
            let last = Shared<Timer?>(removed)
            // The loop's end destroys this closure, and meanwhile another thread releases the timer.
            let ending = AtEnd { onThreads(1) { _ in last.value = nil } }
            Timer.scheduled(after: .seconds(3600)) { _ in _ = ending }
        }
        #expect(destroyed.wait())
    }

    @Test func `a closure of a loop that has ended is destroyed on the thread that invalidates its timer`()
        throws
    {
        let owner = try RunLoopThread(name: "owner")
        let destroyed = Answer<Bool>()
        let timer = Self.makeTimer(of: owner.runLoop, isRemoved: false, destroyed)
        owner.stop()
        timer.invalidate()
        _ = destroyed.wait()
    }

    @Test(arguments: ["adding", "adding there", "firing"])
    func `adding a timer to another loop than its closure's owner, or firing it there, traps`(what: String)
        async
    {
        let result = await #expect(
            processExitsWith: .failure, observing: [\.standardErrorContent]
        ) { [what = what as String] in
            let other = try RunLoopThread(name: "other")
            let timer = RunLoop.main.performSynchronously {
                let timer = Timer.scheduled(after: .seconds(3600)) { _ in exit(0) }
                RunLoop.main.remove(timer, forMode: .default)
                return timer
            }
            if what == "adding" { other.runLoop.add(timer, forMode: .default) }
            other.runLoop.performSynchronously {
                if what == "firing" { timer.fire() } else { other.runLoop.add(timer, forMode: .default) }
            }
            exit(0)
        }
        let part = what == "firing" ? "the loop's own thread" : "'other'"
        #expect(result.message.contains(part), "\(result.message)")
    }

    // MARK: To another loop

    @Test func `a timer belongs to one loop until it has left all its modes there`() throws {
        let trace = Trace()
        let timer = Timer(fireDate: .distantPast) { timer in trace("fired \(loop.isCurrent)") }
        let first = try RunLoopThread(name: "first")
        for mode in [RunLoop.Mode.custom, .common] { first.runLoop.add(timer, forMode: mode) }
        timer.fireDate = .distantFuture
        loop.add(timer, forMode: .custom)
        #expect(!loop.contains(timer, forMode: .custom))
        #expect(first.runLoop.contains(timer, forMode: .custom))
        for mode in [RunLoop.Mode.custom, .common] { first.runLoop.remove(timer, forMode: mode) }
        let isValid = timer.isValid
        loop.add(timer, forMode: .default)
        timer.fireDate = .now
        loop.poll()
        if isValid { #expect(trace.all == ["fired true"]) }
        first.stop()
    }

    @Test func `a timer whose loop ended with its thread may join another`() throws {
        let trace = Trace()
        let timer = Timer(interval: .milliseconds(1)) { _ in trace("fired") }
        try onAThread { RunLoop.current.add(timer, forMode: .default) }
        loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
        #expect(trace.all == ["fired"])
    }

    @Test func `a timer fires in its new loop while the old one is too busy to see it go`() throws {
        let busy = try RunLoopThread(name: "busy")
        let (begun, over) = (Answer<Void>(), Answer<Void>())
        let timer = Timer(fireDate: .distantFuture) { _ in }
        busy.runLoop.add(timer, forMode: .default)
        busy.runLoop.perform {
            begun.give(())
            over.wait()
        }
        begun.wait()
        busy.runLoop.remove(timer, forMode: .default)
        loop.add(timer, forMode: .default)
        timer.fireDate = .now
        loop.poll()
        #expect(!timer.isValid)
        over.give(())
        #expect(busy.runLoop.performAndWait { RunLoop.current.poll(.custom) } == .finished)
        busy.stop()
    }

    @Test(arguments: [true, false])
    func `a timer that moves to another loop in its own callback fires there if it repeats`(repeats: Bool)
        throws
    {
        let other = try RunLoopThread(name: "other")
        let fired = Answer<Bool>()
        let timer = Timer(interval: .milliseconds(1), repeats: repeats) { timer in
            guard loop.isCurrent else {
                timer.invalidate()
                return fired.give(other.runLoop.isCurrent)
            }
            loop.remove(timer, forMode: .default)
            other.runLoop.add(timer, forMode: .default)
            other.runLoop.performAndWait {}
        }
        loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
        if repeats { #expect(fired.wait()) } else { #expect(!timer.isValid) }
        other.stop()
    }
}
