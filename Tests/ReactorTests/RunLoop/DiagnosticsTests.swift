import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Each in a process of its own: the switches are the process's.
@Suite(.runLoop) struct DiagnosticsTests {
    // MARK: Slow callbacks

    @Test func `a quick callback is not reported, nor is anything without debug mode`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            try await onItsOwnThread {
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
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
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

    @Test func `a busy loop names the callback that keeps it busy`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
                let pipe = try TestPipe()
                pipe.put()
                let explained = Answer<String>()
                let source = DescriptorSource(pipe.readEnd, for: .readable, label: "greedy") { source, _ in
                    let asker = try? JoinableThread { explained.give(loop.explain()) }
                    _ = explained.wait()
                    asker?.join()
                    source.cancel()
                }
                try loop.add(source, forMode: .default)
                loop.poll()
                let text = explained.wait()
                #expect(
                    text.contains(
                        "is busy in default: the source of descriptor \(pipe.readEnd.rawValue) 'greedy' has been"
                            + " running for "), "\(text)")
            }
        }
    }

    // MARK: The ledger

    @Test func `the ledger names what has woken the loop, and what its callbacks took`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
                let kernelThread = KernelThread.current
                let pipe = try TestPipe()
                let bell = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { source, _ in
                    spin()
                    pipe.get()
                    loop.stop()
                }
                try loop.add(bell, forMode: .default)
                let wakes: [@Sendable () -> Void] = [{ pipe.put() }, { loop.perform { loop.stop() } }]
                for wake in wakes {
                    let waker = try JoinableThread(name: "waker") {
                        waitUntil { loop.isWaiting && kernelThread.isAsleep }
                        wake()
                    }
                    loop.run(in: .default)
                    waker.join()
                }
                let ledger = loop.statistics.ledger
                let item = ledger.first { $0.name.hasSuffix("'bell'") }
                #expect(item?.wakeUps == 1 && item?.callbacks == 1, "\(ledger)")
                #expect(item!.time >= .milliseconds(2) && item!.longest == item!.time)
                #expect(ledger.first { $0.name == "thread 'waker'" }?.wakeUps == 1, "\(ledger)")
                #expect(loop.statistics.callbackTime >= item!.time)
            }
        }
    }

    @Test func `the lateness of timers adds up`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
                for _ in 0..<2 { Timer.scheduled(after: .zero) { _ in } }
                spin()
                loop.poll()
                #expect(loop.statistics.callbacks.timers == 2)
                #expect(loop.statistics.greatestTimerLateness >= .milliseconds(2))
                #expect(loop.statistics.timerLateness >= .milliseconds(4))
            }
        }
    }

    // MARK: What is never served

    @Test func `a loop that ends without having run says what it has not served`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try onAThread {
                Timer.scheduled(every: .seconds(1), label: "heartbeat") { _ in }
                RunLoop.current.perform {}
            }
        }
        let line = result.lines.first ?? ""
        #expect(line.hasPrefix("Reactor: The run loop "), "\(line)")
        #expect(
            line.contains(
                " has ended without having run: call run(in:until:) on its thread, after something has been added."
            ), "\(line)")
        #expect(line.contains("timer 'heartbeat' (ReactorTests/DiagnosticsTests.swift:"), "\(line)")
        #expect(line.contains("1 block or executor in default, which has never run."), "\(line)")
    }

    @Test func `a loop that ends reports what it would have done once, and modes that it never ran in`() async
    {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try onAThread {
                let loop = RunLoop.current
                Timer.scheduled(every: .seconds(100), label: "periodic") { _ in }
                Timer.scheduled(every: .seconds(100), forMode: .custom, label: "misplaced") { _ in }
                loop.poll()
                let once = Timer.scheduled(after: .zero, label: "once") { _ in }
                waitUntil { once.fireDate < .now }
            }
        }
        let line = result.lines.first ?? ""
        #expect(!line.contains("periodic"))
        #expect(line.contains("timer 'once' "), "\(line)")
        #expect(line.contains("timer 'misplaced' "), "\(line)")
        #expect(line.contains("in 'custom', which has never run."), "\(line)")
    }

    @Test func `the main loop says at exit what it has not served`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            setenv("REACTOR_DEBUG", "1", 1)
            _ = try await probeMainLoop("left at exit")
        }
        let line = result.lines.first ?? ""
        #expect(line.contains("The main run loop has ended without having run"), "\(line)")
        #expect(line.contains("timer 'forgotten' (main_loop_probe/main.swift:"), "\(line)")
    }

    @Test func `a stream that is released before it has delivered anything is reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try await onItsOwnThread {
                let pipe = try TestPipe()
                do {
                    let input = InputStream(descriptor: pipe.readEnd)
                    input.label = "orders"
                    input.schedule(in: .current, forMode: .default)
                    input.open()
                }
                let closed = InputStream(descriptor: pipe.readEnd)
                closed.schedule(in: .current, forMode: .default)
                closed.open()
                closed.close()
            }
        }
        let lines = result.lines.filter { $0.contains("was released") }
        #expect(lines.count == 1, "\(result.lines)")
        #expect(lines.first?.contains("'orders' was released while it was scheduled: ") == true)
    }
}

/// Keeps the thread busy for two milliseconds.
private func spin() {
    let end = Deadline.after(milliseconds: 2)
    while Deadline.now < end {}
}

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
