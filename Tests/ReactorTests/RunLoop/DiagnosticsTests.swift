import Reactor
import ReactorTesting
import Testing

/// What is measured of callbacks. Each in a process of its own: the switches are the process's.
@Suite(.runLoop) struct DiagnosticsTests {
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
                #expect(loop.statistics.callbacks.timers == 2)
                #expect(loop.statistics.greatestTimerLateness >= .milliseconds(2))
                #expect(loop.statistics.timerLateness >= .milliseconds(4))
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
