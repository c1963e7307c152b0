import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StatisticsTests {
    // MARK: Sleeping and waking

    @Test func `an idle loop makes no wake-ups`() async throws {
        let statistics = try await onItsOwnThread { () -> RunLoop.Statistics in
            let loop = RunLoop.current
            let kernelThread = KernelThread.current
            let pipe = try TestPipe()
            let listener = try Listener(.ipv4Loopback(port: 0)) { _, _ in
            } faults: { _, _ in
            }
            try loop.add(listener, forMode: .default)
            try loop.add(DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }, forMode: .default)
            Timer.scheduled(every: .seconds(1_000)) { _ in }
            let idle = Answer<RunLoop.Statistics>()
            let asker = try JoinableThread {
                waitUntil { loop.isWaiting && kernelThread.isAsleep }
                idle.give(loop.statistics)
                loop.stop()
            }
            loop.run(in: .default)
            asker.join()
            listener.close()
            return idle.wait()
        }
        #expect(statistics.wakeUps.total == 0)
        #expect(statistics.sleeps == 0)
        #expect(statistics.passes == 1)
        #expect(statistics.callbacks.total == 0)
    }

    @Test func `wake-ups are counted by what has ended the sleep`() async throws {
        let wakeUps = try await onItsOwnThread { () -> [[Int]] in
            let loop = RunLoop.current
            let kernelThread = KernelThread.current
            loop.hold(.default)
            /// The wake-ups of a run that another thread ends: by time, by a descriptor, by a thread.
            func count(_ body: @escaping @Sendable () -> Void) throws -> [Int] {
                let before = loop.statistics.wakeUps
                let waker = try JoinableThread {
                    waitUntil { loop.isWaiting && kernelThread.isAsleep }
                    body()
                }
                loop.run(in: .default, returnAfterSourceHandled: true)
                waker.join()
                let after = loop.statistics.wakeUps
                return [
                    after.byTime - before.byTime, after.byDescriptor - before.byDescriptor,
                    after.byThread - before.byThread,
                ]
            }
            let byThread = try count { loop.performAsSource {} }
            let pipe = try TestPipe()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
            try loop.add(source, forMode: .default)
            let byDescriptor = try count { pipe.put() }
            // A busy machine may be late for one of them, and the loop then does not sleep.
            let before = loop.statistics.wakeUps
            while loop.statistics.wakeUps.byTime == before.byTime {
                Timer.scheduled(after: .milliseconds(1)) { _ in RunLoop.current.stop() }
                loop.run(in: .default)
            }
            let after = loop.statistics.wakeUps
            return [byThread, byDescriptor, [after.total - before.total]]
        }
        #expect(wakeUps == [[0, 0, 1], [0, 1, 0], [1]])
    }

    // MARK: Callbacks

    @Test func `callbacks are counted by kind`() async throws {
        let callbacks = try await onItsOwnThread { () -> RunLoop.Statistics.Callbacks in
            let loop = RunLoop.current
            let pipe = try TestPipe()
            pipe.put()
            try loop.add(
                DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() },
                forMode: .default)
            let source = loop.hold(.default)
            source.signal()
            for _ in 0..<3 { loop.perform {} }
            for _ in 0..<2 { Timer.scheduled(after: .zero) { _ in } }
            loop.observe(.beforeTimers) { _ in }
            loop.poll()
            return loop.statistics.callbacks
        }
        #expect(callbacks.blocks == 3)
        #expect(callbacks.timers == 2)
        #expect(callbacks.sources == 1)
        #expect(callbacks.observers == 1)
        #expect(callbacks.events == 1)
        #expect(callbacks.total == 8)
    }

    @Test func `an executor's jobs are counted`() async throws {
        try await withRunLoopThread(name: "jobs") { thread in
            let before = thread.runLoop.statistics.callbacks.jobs
            await Task(executorPreference: thread.executor) {}.value
            #expect(thread.runLoop.statistics.callbacks.jobs > before)
            #expect(thread.runLoop.statistics.pending.jobs == 0)
        }
    }

    @Test func `what waits for the loop is counted by kind`() async throws {
        let pending = try await onItsOwnThread { () -> RunLoop.Statistics.Pending in
            let loop = RunLoop.current
            let source = loop.hold(.default)
            source.signal()
            for _ in 0..<3 { loop.perform {} }
            try onAThread { loop.add(Timer(interval: .seconds(100)) { _ in }, forMode: .default) }
            return loop.statistics.pending
        }
        #expect(pending.blocks == 3)
        #expect(pending.signals == 1)
        #expect(pending.changes == 1)
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

    @Test func `without measuring there is no ledger`() async throws {
        let statistics = try await onItsOwnThread { () -> RunLoop.Statistics in
            Timer.scheduled(after: .zero, label: "unmeasured") { _ in }
            RunLoop.current.poll()
            return RunLoop.current.statistics
        }
        #expect(statistics.ledger.isEmpty)
        #expect(statistics.callbackTime == .zero)
    }
}
