import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct StatisticsTests {
    private let loop = RunLoop.current

    @Test func `an idle loop makes no wake-ups`() throws {
        let pipe = try TestPipe()
        let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in }
        try loop.add(listener, forMode: .default)
        try loop.add(DescriptorSource(pipe, Trace(), ""), forMode: .default)
        Timer.scheduled(every: .seconds(1_000)) { _ in }
        let idle = Answer<RunLoop.Statistics>()
        let before = loop.statistics
        let asker = try loop.whenAsleep {
            idle.give(loop.statistics)
            loop.stop()
        }
        loop.run(in: .default)
        asker.join()
        #expect(idle.wait().wakeUps.total == before.wakeUps.total)
        #expect(idle.wait().sleeps == before.sleeps)
        #expect(idle.wait().passes == before.passes + 1)
        #expect(idle.wait().callbacks.total == before.callbacks.total)
        listener.close()
    }

    @Test func `wake-ups are counted by what has ended the sleep`() throws {
        loop.hold(.default)
        /// The wake-ups of a run that another thread ends: by time, by a descriptor, by a thread.
        func count(_ body: @escaping @Sendable () -> Void) throws -> [Int] {
            let before = loop.statistics.wakeUps
            let waker = try loop.whenAsleep(body)
            loop.run(in: .default, returnAfterSourceHandled: true)
            waker.join()
            let after = loop.statistics.wakeUps
            return [
                after.byTime - before.byTime, after.byDescriptor - before.byDescriptor,
                after.byThread - before.byThread,
            ]
        }
        #expect(try count { loop.performAsSource {} } == [0, 0, 1])
        let pipe = try TestPipe()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
        try loop.add(source, forMode: .default)
        #expect(try count { pipe.put() } == [0, 1, 0])
        // A busy machine may be late for one of them, and the loop then does not sleep.
        let before = loop.statistics.wakeUps
        while loop.statistics.wakeUps.byTime == before.byTime {
            Timer.scheduled(after: .milliseconds(1)) { _ in loop.stop() }
            loop.run(in: .default)
        }
        #expect(loop.statistics.wakeUps.total == before.total + 1)
    }

    @Test func `callbacks are counted by kind`() throws {
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
        try loop.add(source, forMode: .default)
        loop.addSignalled {}
        for _ in 0..<3 { loop.perform {} }
        for _ in 0..<2 { Timer.scheduled(after: .zero) { _ in } }
        loop.observe(.beforeTimers) { _ in }
        let removed = RunLoop.Observer(for: .beforeTimers) { _, _ in }
        loop.add(removed, forMode: .default)
        loop.remove(removed, forMode: .default)
        let before = loop.statistics.callbacks
        loop.poll()
        let after = loop.statistics.callbacks
        #expect(after.blocks == before.blocks + 3)
        #expect(after.timers == before.timers + 2)
        #expect(after.sources == before.sources + 1)
        #expect(after.observers == before.observers + 1)
        #expect(after.events == before.events + 1)
        #expect(after.total == before.total + 8)
    }

    @Test func `an executor's jobs are counted`() async throws {
        try await withRunLoopThread(name: "jobs") { thread in
            let before = thread.runLoop.statistics.callbacks.jobs
            await Task(executorPreference: thread.executor) {}.value
            #expect(thread.runLoop.statistics.callbacks.jobs > before)
            #expect(thread.runLoop.statistics.pending.jobs == 0)
        }
    }

    @Test func `what waits for the loop is counted by kind`() {
        loop.addSignalled {}
        for _ in 0..<3 { loop.perform {} }
        onThreads(1) { _ in loop.add(Timer(interval: .seconds(100)) { _ in }, forMode: .default) }
        #expect(loop.statistics.pending.blocks == 3)
        #expect(loop.statistics.pending.signals == 1)
        #expect(loop.statistics.pending.changes == 1)
    }

    @Test func `the thread's processor time grows with its work, and is kept when it has ended`() throws {
        let (loop, time) = (Answer<RunLoop>(), Answer<Duration>())
        try onAThread {
            let start = RunLoop.current.statistics.processorTime
            while RunLoop.current.statistics.processorTime - start < .milliseconds(5) {}
            loop.give(.current)
            time.give(RunLoop.current.statistics.processorTime)
        }
        let kept = loop.wait().statistics.processorTime
        #expect(kept >= time.wait() && kept >= .milliseconds(5))
        #expect(loop.wait().statistics.processorTime == kept)
    }

    @Test func `without measuring there is no ledger`() {
        Timer.scheduled(after: .zero, label: "unmeasured") { _ in }
        loop.poll()
        #expect(loop.statistics.ledger.isEmpty)
        #expect(loop.statistics.callbackTime == .zero)
    }
}
