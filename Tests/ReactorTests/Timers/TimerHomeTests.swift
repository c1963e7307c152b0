import Glibc
import Testing

@testable import Reactor

/// Closures that belong to a thread, of timers that leave its loop.
@Suite struct TimerHomeTests {
    /// A timer in no loop, whose closure belongs to `home`; tells where the closure was destroyed.
    private static func homelessTimer(of home: RunLoop, _ destroyed: Answer<Bool>) -> Timer {
        home.performAndWait {
            let canary = AtEnd { destroyed.give(home.isCurrent) }
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in _ = canary }
            home.remove(timer, forMode: .default)
            return timer
        }
    }

    @Test(arguments: [true, false])
    func `a closure goes home when its timer is invalidated in another loop`(onThatThread: Bool) throws {
        let (home, other) = (try RunLoopThread(name: "home"), try RunLoopThread(name: "other"))
        let destroyed = Answer<Bool>()
        let timer = Self.homelessTimer(of: home.runLoop, destroyed)
        other.runLoop.add(timer, forMode: .default)
        other.runLoop.performAndWait { if onThatThread { timer.invalidate() } }
        timer.invalidate()
        #expect(destroyed.wait())
        #expect(!other.runLoop.contains(timer, forMode: .default))
        other.stop()
        home.stop()
    }

    @Test func `a closure goes home when the last owner of its timer lets go`() throws {
        let home = try RunLoopThread(name: "home")
        let destroyed = Answer<Bool>()
        _ = Self.homelessTimer(of: home.runLoop, destroyed)
        #expect(destroyed.wait())
        home.stop()
    }

    @Test func `a closure goes home when the other loop that its timer is in ends`() throws {
        let (home, other) = (try RunLoopThread(name: "home"), try RunLoopThread(name: "other"))
        let destroyed = Answer<Bool>()
        let timer = Self.homelessTimer(of: home.runLoop, destroyed)
        other.runLoop.add(timer, forMode: .default)
        other.stop()
        #expect(destroyed.wait())
        #expect(!timer.isValid)
        home.stop()
    }

    @Test func `a timer that comes back to its home fires there`() async throws {
        let other = try RunLoopThread(name: "other")
        try await onItsOwnThread {
            let loop = RunLoop.current
            var calls = 0
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in calls += 1 }
            loop.remove(timer, forMode: .default)
            other.runLoop.add(timer, forMode: .default)
            loop.add(timer, forMode: .default)
            #expect(!loop.contains(timer, forMode: .default))
            other.runLoop.remove(timer, forMode: .default)
            loop.add(timer, forMode: .default)
            timer.fireDate = .now
            loop.poll()
            #expect(calls == 1)
            #expect(!timer.isValid)
        }
        other.stop()
    }

    @Test func `a closure that belongs to another thread traps when a loop would call it`() async {
        await #expect(processExitsWith: .failure) {
            let other = try RunLoopThread(name: "other")
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in exit(0) }
            RunLoop.current.remove(timer, forMode: .default)
            timer.fireDate = .now
            other.runLoop.add(timer, forMode: .default)
            pause()
        }
    }

    @Test func `firing a closure that belongs to another thread traps`() async {
        await #expect(processExitsWith: .failure) {
            let other = try RunLoopThread(name: "other")
            let timer = Timer.scheduled(after: .seconds(3600)) { _ in exit(0) }
            other.runLoop.performAndWait { timer.fire() }
        }
    }
}
