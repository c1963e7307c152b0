import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct RunLoopThreadTests {
    @Test func `the thread runs its loop until it is stopped, even with nothing to serve`() throws {
        let thread = try RunLoopThread(name: "idle")
        thread.untilAsleep()
        #expect(thread.runLoop.currentMode == .default)
        #expect(!thread.runLoop.isCurrent)
        #expect(thread.runLoop.performAndWait { RunLoop.current } === thread.runLoop)
        thread.stop()
        #expect(thread.runLoop.currentMode == nil)
    }

    @Test(arguments: [("short", "short"), ("a name of more than fifteen bytes", "a name of more "), ("", "")])
    func `the kernel has the thread's name, up to fifteen bytes`(name: String, seen: String) throws {
        let thread = try RunLoopThread(name: name)
        #expect(thread.name == name)
        #expect(thread.runLoop.performAndWait { nameOfThread() } == seen)
        thread.stop()
    }

    @Test func `blocks that were posted before stop run, those posted after do not`() throws {
        let thread = try RunLoopThread(name: "blocks")
        let runs = Shared(0)
        for _ in 0..<1_000 { thread.runLoop.perform { runs.update { $0 += 1 } } }
        thread.stop()
        #expect(runs.value == 1_000)
        let freed = Shared(false)
        post(AtEnd { freed.value = true }, to: thread.runLoop) { runs.update { $0 += 1 } }
        #expect(freed.value)
        #expect(runs.value == 1_000)
    }

    @Test func `stop again, and from several threads at once, waits for the same end`() throws {
        for _ in 0..<50 {
            let thread = try RunLoopThread(name: "stopped")
            let ended = Shared(false)
            thread.runLoop.performAndWait { [loop = thread.runLoop] in
                let canary = AtEnd { ended.value = true }
                loop.perform(after: .seconds(3600)) { withExtendedLifetime(canary) {} }
            }
            onThreads(4) { _ in
                thread.stop()
                #expect(ended.value)
            }
            thread.stop()
        }
    }

    @Test func `stop on the thread itself ends it after the callback`() throws {
        let thread = try RunLoopThread(name: "itself")
        let trace = Trace()
        let freed = Shared(false)
        post(AtEnd { freed.value = true }, to: thread.runLoop) {
            thread.stop()
            trace("after stop")
        }
        thread.stop()
        #expect(trace.all == ["after stop"])
        #expect(freed.value)
    }

    @Test(arguments: [true, false])
    func `a stopped thread leaves no objects, however it was stopped`(stopsItself: Bool) throws {
        weak var weakThread: RunLoopThread?
        weak var weakLoop: RunLoop?
        do {
            let thread = try RunLoopThread(name: "freed")
            (weakThread, weakLoop) = (thread, thread.runLoop)
            if stopsItself { thread.runLoop.perform { thread.stop() } }
            thread.stop()
            thread.runLoop.perform {}
            thread.runLoop.add(Timer(fireDate: .now) { _ in }, forMode: .default)
        }
        waitUntil { weakThread == nil && weakLoop == nil }
    }

    @Test func `a hundred stopped threads leave neither descriptors nor threads`() async {
        await #expect(processExitsWith: .success) {
            for _ in 0..<3 { try await RunLoopThread(name: "first").shutDown() }
            let descriptors = ownDescriptors()
            for round in 0..<10 {
                let threads = try (0..<10).map { _ in try RunLoopThread(name: "round \(round)") }
                #expect(ownThreads(named: "round \(round)") == 10)
                for thread in threads { thread.runLoop.performSynchronously { _ = RunLoop.current.poll() } }
                #expect(ownDescriptors() > descriptors)
                for thread in threads { await thread.shutDown() }
            }
            // Dispatch may have opened some of its own meanwhile; one for each thread would be a hundred.
            #expect(ownDescriptors() < descriptors + 100)
            waitUntil { ownThreads(named: "round") == 0 }
        }
    }
}

private func post(_ canary: AtEnd, to loop: RunLoop, _ body: @escaping @Sendable () -> Void) {
    loop.perform { withExtendedLifetime(canary) { body() } }
}

private func nameOfThread() -> String {
    String(decoding: content(of: "/proc/thread-self/comm") ?? [], as: UTF8.self).replacing("\n", with: "")
}
