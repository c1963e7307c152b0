import Reactor
import ReactorTestSupport
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
        #expect(idle.wait().wakeUps == before.wakeUps)
        #expect(idle.wait().passes == before.passes + 1)
        #expect(idle.wait().callbacks == before.callbacks)
        // Nothing is measured unless that is asked for.
        #expect(loop.statistics.ledger.isEmpty && loop.statistics.callbackTime == .zero)
        listener.close()
    }

    @Test func `wake-ups are counted by what has ended the sleep`() throws {
        loop.hold(.default)
        /// The wake-ups of a run that another thread ends: by time, by a descriptor, by a thread.
        func count(_ body: @escaping @Sendable () -> Void) throws -> [Int] {
            let before = loop.statistics
            let waker = try loop.whenAsleep(body)
            loop.run(in: .default, returnAfterSourceHandled: true)
            waker.join()
            let after = loop.statistics
            return [
                after.wakeUpsByTime - before.wakeUpsByTime,
                after.wakeUpsByDescriptor - before.wakeUpsByDescriptor,
                after.wakeUpsByThread - before.wakeUpsByThread,
            ]
        }
        #expect(try count { loop.performAsSource {} } == [0, 0, 1])
        let pipe = try TestPipe()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
        try loop.add(source, forMode: .default)
        #expect(try count { pipe.put() } == [0, 1, 0])
        // A busy machine may be late for one of them, and the loop then does not sleep.
        let before = loop.statistics
        while loop.statistics.wakeUps == before.wakeUps {
            Timer.scheduled(after: .milliseconds(1)) { _ in loop.stop() }
            loop.run(in: .default)
        }
        #expect(loop.statistics.wakeUpsByTime == before.wakeUpsByTime + 1)
        #expect(loop.statistics.wakeUps == before.wakeUps + 1)
    }

    @Test func `callbacks are counted, and timers among them`() throws {
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
        try loop.add(source, forMode: .default)
        loop.addSignalled {}
        Task(executorPreference: loop.executor()) {}
        for _ in 0..<3 { loop.perform {} }
        for _ in 0..<2 { Timer.scheduled(after: .zero) { _ in } }
        loop.observe(.beforeTimers) { _ in }
        let removed = RunLoop.Observer(for: .beforeTimers) { _, _ in }
        loop.add(removed, forMode: .default)
        loop.remove(removed, forMode: .default)
        let before = loop.statistics
        loop.poll()
        let after = loop.statistics
        #expect(after.timerFirings == before.timerFirings + 2)
        // Three blocks, two timers, a source, an observer, an event, and at least one job.
        #expect(after.callbacks > before.callbacks + 8)
        #expect(after.pendingJobs == 0)
    }

    @Test func `blocks that wait for the loop are counted`() {
        for _ in 0..<3 { loop.perform {} }
        #expect(loop.statistics.pendingBlocks == 3)
        loop.poll()
        #expect(loop.statistics.pendingBlocks == 0)
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
}

/// What is measured of callbacks, and for which item. Each in a process of its own: the switches are the process's.
@Suite(.runLoop) struct LedgerTests {
    @Test func `a quick callback is not reported, nor is anything without debug mode`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            try onAThread {
                let loop = RunLoop.current
                LoopDiagnostics.slowCallback = .milliseconds(1)
                loop.perform { spin() }
                loop.poll()
                loop.perform(inModes: [.custom]) {}
                LoopDiagnostics.slowCallback = .seconds(1_000)
                LoopDiagnostics.isDebugging = true
                loop.perform { spin() }
                loop.poll()
                LoopDiagnostics.isDebugging = false
            }
        }
        #expect(result.lines.isEmpty)
    }

    @Test func `the time of nested runs is not a callback's`() async {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                loop.hold(.inner)
                let nested = Shared<[Deadline]>([])
                loop.observe([.entry, .exit], in: .inner) { _ in nested.update { $0.append(.now) } }
                loop.perform { loop.run(in: .inner, until: .after(milliseconds: 20)) }
                let start = Deadline.now
                loop.poll()
                let elapsed = start.duration(to: .now)
                let times = nested.value
                let block = loop.statistics.ledger.first { $0.name == "posted block" }
                #expect(block!.time <= elapsed - times[0].duration(to: times[1]))
                #expect(block!.callbacks == 1)
            }
        }
    }

    @Test func `the lateness of timers adds up`() async {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                for _ in 0..<2 { Timer.scheduled(after: .zero) { _ in } }
                spin()
                loop.poll()
                #expect(loop.statistics.timerFirings == 2)
                #expect(loop.statistics.greatestTimerLateness >= .milliseconds(2))
                #expect(loop.statistics.timerLateness >= .milliseconds(4))
            }
        }
    }

    @Test func `a wake-up is the item's whose callback follows, or else the thread's that asked for it`()
        async
    {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                let pipe = try TestPipe()
                let bell = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { _, _ in
                    spin()
                    pipe.get()
                    loop.stop()
                }
                try loop.add(bell, forMode: .default)
                loop.observe(.afterWaiting) { _ in }
                let thread = KernelThread.current
                for wake in [{ @Sendable in pipe.put() }, { @Sendable in loop.perform { loop.stop() } }] {
                    let waker = try loop.whenAsleep(wake)
                    loop.run(in: .default)
                    waker.join()
                }
                // One without a handler, and the next one a timer's.
                let waker = try loop.whenAsleep {
                    let before = loop.statistics.wakeUpsByThread
                    loop.wakeUp()
                    waitUntil { loop.statistics.wakeUpsByThread > before }
                    waitUntil { loop.isWaiting && thread.isAsleep }
                    loop.add(
                        Timer(interval: .milliseconds(50), label: "alarm") { _ in loop.stop() },
                        forMode: .default)
                }
                loop.run(in: .default)
                waker.join()
                let ledger = loop.statistics.ledger
                func entry(_ name: String) -> RunLoop.Statistics.LedgerEntry? {
                    ledger.first { $0.name.contains(name) }
                }
                #expect(entry("'bell'")?.wakeUps == 1 && entry("'bell'")?.callbacks == 1, "\(ledger)")
                #expect(entry("'alarm'")?.wakeUps == 1 && entry("'waker'")?.wakeUps == 3, "\(ledger)")
                #expect(entry("observer")?.wakeUps == 0, "\(ledger)")
                let time = entry("'bell'")!.time
                #expect(time >= .milliseconds(2) && entry("'bell'")!.longest == time)
                #expect(loop.statistics.callbackTime >= time)
            }
        }
    }

    @Test func `a sleep that a run's deadline has ended is no item's`() async {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                loop.hold(.default)
                while loop.statistics.wakeUpsByTime == 0 {
                    loop.run(in: .default, until: .after(milliseconds: 5))
                }
                loop.perform {}
                Timer.scheduled(after: .zero) { _ in }
                loop.poll()
                #expect(loop.statistics.callbacks == 2)
                #expect(loop.statistics.timerFirings == 1)
                #expect(loop.statistics.ledger.allSatisfy { $0.wakeUps == 0 }, "\(loop.statistics.ledger)")
            }
        }
    }

    @Test func `unlabelled items of a kind share an entry, and labelled ones have their own`() async {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                for label in [nil, nil, "bell"] {
                    let pipe = try TestPipe()
                    pipe.put()
                    let source = DescriptorSource(pipe.readEnd, for: .readable, label: label) { source, _ in
                        withExtendedLifetime(pipe) { source.cancel() }
                    }
                    try loop.add(source, forMode: .default)
                }
                for host in ["127.0.0.1", "::1"] { Resolver.resolve(host: host, port: 1) { _ in } }
                loop.poll()
                let ledger = loop.statistics.ledger
                for (name, count) in [("descriptor source", 2), ("lookup", 2)] {
                    #expect(ledger.first { $0.name == name }?.callbacks == count, "\(ledger)")
                }
                #expect(ledger.first { $0.name.hasSuffix("'bell'") }?.callbacks == 1, "\(ledger)")
            }
        }
    }
}

/// Runs `body` on a thread of its own, with callbacks measured.
func measured(_ body: @escaping @Sendable (RunLoop) throws -> Void) throws {
    LoopDiagnostics.measuresCallbacks = true
    try onAThread { try body(.current) }
}

/// Keeps the thread busy for two milliseconds.
func spin() { Deadline.after(milliseconds: 2).busyWait() }

/// Begins to debug, and records the reports.
func debuggedReports() -> Shared<[LoopDiagnostics.Report]> {
    let reports = Shared<[LoopDiagnostics.Report]>([])
    LoopDiagnostics.isDebugging = true
    LoopDiagnostics.setReportHandler { report in reports.update { $0.append(report) } }
    return reports
}

extension ExitTest.Result? {
    var lines: [Substring] {
        String(decoding: self?.standardErrorContent ?? [], as: UTF8.self).split(separator: "\n")
    }
}
