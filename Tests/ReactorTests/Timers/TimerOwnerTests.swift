import Glibc
import Reactor
import ReactorTesting
import Synchronization
import Testing

/// Closures that belong to a thread, of timers that leave its loop.
@Suite(.runLoop) struct TimerOwnerTests {
    /// A timer in no loop, whose closure belongs to `owner`; reports where the closure was destroyed.
    private static func removedTimer(of owner: RunLoop, _ destroyed: Answer<Bool>) -> Timer {
        owner.performAndWait {
            let canary = AtEnd { destroyed.give(owner.isCurrent) }
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            owner.remove(timer, forMode: .default)
            return timer
        }
    }

    @Test(arguments: [true, false])
    func `a closure is destroyed on its owner's thread when its timer is invalidated outside any loop`(
        onThatThread: Bool
    ) throws {
        let (owner, other) = (try RunLoopThread(name: "owner"), try RunLoopThread(name: "other"))
        let destroyed = Answer<Bool>()
        let timer = Self.removedTimer(of: owner.runLoop, destroyed)
        other.runLoop.performAndWait { if onThatThread { timer.invalidate() } }
        timer.invalidate()
        #expect(destroyed.wait())
        other.stop()
        owner.stop()
    }

    @Test
    func `a closure is destroyed on its owner's thread when the last reference to its timer is released`()
        throws
    {
        let owner = try RunLoopThread(name: "owner")
        let destroyed = Answer<Bool>()
        _ = Self.removedTimer(of: owner.runLoop, destroyed)
        #expect(destroyed.wait())
        owner.stop()
    }

    @Test func `a closure that is released while its owner's loop ends is destroyed on that thread`() throws {
        let destroyed = Answer<Bool>()
        try JoinableThread(name: "owner") {
            let owner = pthread_self()
            let loop = RunLoop.current
            let canary = AtEnd { destroyed.give(pthread_self() == owner) }
            let removed = Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            loop.remove(removed, forMode: .default)
            let last = Mutex<Timer?>(removed)
            // The loop's end destroys this closure, and meanwhile another thread releases the timer.
            let ending = AtEnd {
                _ = try? JoinableThread(name: "other") { last.withLock { $0 = nil } }.join()
            }
            Timer.scheduled(after: .seconds(3600)) { _ in _ = ending }
        }.join()
        #expect(destroyed.wait())
    }

    @Test func `a timer removed from all modes of its owner's loop can be added again and fires`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            var calls = 0
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in calls += 1 }
            loop.remove(timer, forMode: .default)
            #expect(!loop.contains(timer, forMode: .default))
            loop.add(timer, forMode: .default)
            timer.fireDate = .now
            loop.poll()
            #expect(calls == 1)
            #expect(!timer.isValid)
        }
    }

    @Test func `a timer whose closure may go anywhere joins another loop after it has left all modes of one`()
        async throws
    {
        let other = try RunLoopThread(name: "other")
        let fired = Answer<Bool>()
        try await onItsOwnThread {
            let timer = Timer(interval: .seconds(3600), repeats: true) { timer in
                timer.invalidate()
                fired.give(other.runLoop.isCurrent)
            }
            RunLoop.current.add(timer, forMode: .common)
            RunLoop.current.remove(timer, forMode: .common)
            timer.fireDate = .now
            other.runLoop.add(timer, forMode: .default)
        }
        #expect(fired.wait())
        other.stop()
    }

    @Test(arguments: [true, false])
    func `adding a timer to another loop than its closure's owner traps with a message`(isAway: Bool) async {
        let result = await #expect(
            processExitsWith: .failure, observing: [\.standardErrorContent]
        ) { [isAway] in
            let other = try RunLoopThread(name: "other")
            let timer = RunLoop.main.performAndWait {
                let timer = Timer.scheduled(after: .seconds(3600)) { _ in exit(0) }
                RunLoop.main.remove(timer, forMode: .default)
                return timer
            }
            if isAway { other.runLoop.performAndWait { other.runLoop.add(timer, forMode: .default) } }
            other.runLoop.add(timer, forMode: .default)
            exit(0)
        }
        #expect(result.message.contains("cannot be added to the run loop"))
    }

    @Test func `firing a closure that belongs to another thread traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let other = try RunLoopThread(name: "other")
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in exit(0) }
            other.runLoop.performAndWait { timer.fire() }
        }
        #expect(result.message.contains("use it on the loop's own thread"))
    }
}
