import Reactor
import ReactorTesting
import Testing

/// Timers that other threads than the loop's handle. Each test ends by itself only if the loop wakes.
@Suite(.runLoop) struct TimerThreadTests {
    @Test func `a timer added from another thread wakes the loop and fires`() throws {
        let thread = try RunLoopThread(name: "loop")
        let fired = Answer<Bool>()
        let timer = Timer(interval: .milliseconds(3)) { [loop = thread.runLoop] timer in
            fired.give(loop.isCurrent && Deadline.now >= timer.fireDate)
        }
        thread.untilAsleep()
        thread.runLoop.add(timer, forMode: .default)
        #expect(fired.wait())
        thread.stop()
    }

    @Test func `a date set from another thread wakes the loop`() throws {
        let thread = try RunLoopThread(name: "loop")
        let fired = Answer<Void>()
        let timer = Timer(fireDate: .distantFuture) { _ in fired.give(()) }
        thread.runLoop.add(timer, forMode: .default)
        thread.untilAsleep()
        timer.fireDate = .now + .milliseconds(1)
        fired.wait()
        // The callback is still under way when it answers; it is over when the thread is.
        thread.stop()
        #expect(!timer.isValid)
    }

    @Test func `a later date set from another thread is kept`() throws {
        let thread = try RunLoopThread(name: "loop")
        let fired = Answer<Bool>()
        let timer = Timer(interval: .milliseconds(5)) { timer in
            fired.give(Deadline.now >= timer.fireDate)
        }
        thread.runLoop.add(timer, forMode: .default)
        let later = timer.fireDate + .milliseconds(15)
        timer.fireDate = later
        #expect(fired.wait())
        #expect(timer.fireDate == later)
        thread.stop()
    }

    @Test func `invalidating from another thread ends a loop that has nothing else`() async throws {
        let timer = Timer(fireDate: .distantFuture) { _ in }
        let loop = Answer<RunLoop>()
        async let result = onItsOwnThread { () -> RunLoop.RunResult in
            RunLoop.current.add(timer, forMode: .default)
            loop.give(.current)
            return RunLoop.current.run(in: .default)
        }
        try await onItsOwnThread {
            loop.wait().untilAsleep()
            timer.invalidate()
        }
        #expect(try await result == .finished)
    }

    @Test func `moving a timer from another thread during its callback counts as moving it inside`() throws {
        let thread = try RunLoopThread(name: "loop")
        let (begun, moved, over) = (Answer<Void>(), Answer<Void>(), Answer<Void>())
        let calls = Shared(0)
        let timer = Timer(interval: .milliseconds(1), repeats: true) { _ in
            guard
                calls.update({
                    $0 += 1
                    return $0
                }) == 1
            else { return }
            begun.give(())
            moved.wait()
            thread.runLoop.perform { over.give(()) }
        }
        thread.runLoop.add(timer, forMode: .default)
        begun.wait()
        let later = Deadline.now + .seconds(600)
        timer.fireDate = later
        moved.give(())
        over.wait()
        thread.runLoop.performAndWait {}
        #expect(timer.fireDate == later)
        #expect(calls.value == 1)
        thread.stop()
    }

    @Test func `a timer that another thread removes or moves does not fire in the batch under way`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let names = ["invalidated", "removed", "moved", "left alone"]
            let victims = names.map { name in
                Timer(fireDate: .distantFuture) { _ in trace(name) }
            }
            let first = Timer(fireDate: .now) { _ in
                onThreads(1) { _ in
                    victims[0].invalidate()
                    loop.remove(victims[1], forMode: .default)
                    victims[2].fireDate = .distantFuture
                }
            }
            for victim in victims { victim.fireDate = .now }
            for timer in victims + [first] { loop.add(timer, forMode: .default) }
            loop.poll()
            victims[2].invalidate()
        }
        #expect(trace == ["left alone"])
    }

    @Test func `a closure is destroyed on its owner's thread even if its timer is invalidated on another`()
        throws
    {
        for _ in 0..<200 {
            let thread = try RunLoopThread(name: "loop")
            let destroyed = Answer<Bool>()
            let timer = thread.runLoop.performAndWait { [loop = thread.runLoop] in
                let canary = AtEnd { destroyed.give(loop.isCurrent) }
                return Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            }
            timer.invalidate()
            #expect(destroyed.wait())
            thread.stop()
        }
    }

    @Test func `a closure of a loop that has ended is destroyed on the thread that invalidates its timer`()
        throws
    {
        let thread = try RunLoopThread(name: "loop")
        let destroyed = Answer<Void>()
        let timer = thread.runLoop.performAndWait {
            let canary = AtEnd { destroyed.give(()) }
            return Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
        }
        thread.stop()
        timer.invalidate()
        destroyed.wait()
    }

    @Test func `threads may move and invalidate timers whose loop is just ending`() {
        for _ in 0..<200 {
            let timers = Shared<[Timer]>([])
            let (made, destroyed) = (Countdown(1), Countdown(2))
            onThreads(3) { thread in
                if thread == 0 {
                    let (first, second) = (AtEnd { destroyed.count() }, AtEnd { destroyed.count() })
                    let own = Timer.scheduled(after: .seconds(3600)) { _ in _ = first }
                    let free = Timer(fireDate: .distantFuture) { _ in _ = second }
                    RunLoop.current.add(free, forMode: .default)
                    timers.value = [own, free]
                    made.count()
                } else {
                    made.wait()
                    for timer in timers.value {
                        for _ in 0..<20 { timer.fireDate = .distantFuture }
                        if thread == 1 { timer.invalidate() }
                    }
                }
            }
            destroyed.wait()
        }
    }

    @Test func `closures released while their owner's loop is busy with them are destroyed on its thread`()
        throws
    {
        let thread = try RunLoopThread(name: "loop")
        let away = Shared(0)
        let left = Countdown(2_000)
        let timers = thread.runLoop.performAndWait { [loop = thread.runLoop] in
            (0..<2_000).map { _ in
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
        thread.stop()
    }
}
