import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Which programs the debug mode reports, and which correct ones it does not. Each in a process of its own.
@Suite(.runLoop) struct ReportTests {
    // MARK: What is left at the end

    @Test func `an item is served if one of its modes has run`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try onAThread {
                let (loop, pipe) = (RunLoop.current, try TestPipe())
                let timer = Timer(interval: .seconds(100), repeats: true) { _ in }
                let source = RunLoop.Source {}
                let event = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                for mode in [RunLoop.Mode.default, .tracking] {
                    loop.add(timer, forMode: mode)
                    loop.add(source, forMode: mode)
                    try loop.add(event, forMode: mode)
                }
                loop.poll()
            }
        }
        #expect(result.message.isEmpty, "\(result.message)")
    }

    @Test func `a source that another loop serves is not reported, and equal items are counted`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            let source = RunLoop.Source(label: "shared") {}
            try await withRunLoopThread(name: "server") { server in
                server.runLoop.performAndWait { RunLoop.current.add(source, forMode: .default) }
                try onAThread {
                    RunLoop.current.add(source, forMode: .custom)
                    for _ in 0..<1000 {
                        Timer.scheduled(after: .seconds(100), forMode: .custom, label: "idle") { _ in }
                    }
                }
                source.invalidate()
            }
        }
        #expect(!result.message.contains("'shared'"), "\(result.message)")
        #expect(result.message.contains("1000 × timer 'idle' "), "\(result.message)")
    }

    @Test func `a timer is reported when it is due, and not before`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try onAThread {
                RunLoop.current.hold(.default)
                RunLoop.current.poll()
                Timer.scheduled(after: .seconds(100), label: "idle time-out") { _ in }
                let late = Timer.scheduled(after: .zero, label: "late") { _ in }
                waitUntil { late.fireDate < .now }
            }
        }
        #expect(!result.message.contains("idle time-out"), "\(result.message)")
        #expect(result.message.contains("timer 'late' "), "\(result.message)")
    }

    @Test func `what the pass that exits would have served is not reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            setenv("REACTOR_DEBUG", "1", 1)
            _ = try await probeMainLoop("exit in a timer")
        }
        #expect(result.message.isEmpty, "\(result.message)")
    }

    @Test func `the main loop reports at exit if debugging began after its first use`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            _ = try await probeMainLoop("debugging that begins late")
        }
        #expect(result.message.contains("timer 'forgotten'"), "\(result.message)")
    }

    @Test func `a block for several modes is reported once`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try onAThread {
                for _ in 0..<2 { RunLoop.current.perform(inModes: [.tracking, .custom]) {} }
                RunLoop.current.perform(inModes: [.custom]) {}
            }
        }
        let text = result.message
        #expect(
            text.contains("2 blocks or executors in tracking and 'custom', which have never run;"), "\(text)")
        #expect(text.contains("1 block or executor in 'custom', which has never run."), "\(text)")
    }

    @Test func `an ordered block for several modes is reported once, and not if one has run`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try onAThread {
                let loop = RunLoop.current
                loop.perform(order: 0, inModes: [.tracking, .custom]) {}
                #expect(loop.explain().hasSuffix(" 1 block or executor waits for tracking or 'custom'."))
                loop.hold(.default)
                loop.poll()
                loop.perform(order: 0, inModes: [.default, .outer]) {}
            }
        }
        let text = result.message
        #expect(
            text.contains("1 block or executor in tracking and 'custom', which have never run"), "\(text)")
        #expect(text.contains("1 block or executor in default and 'outer'"), "\(text)")
        #expect(!text.contains("'outer', which"), "\(text)")
    }

    @Test func `modes that have never run are named together`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let loop = RunLoop.current
                loop.hold(.default)
                loop.poll()
                let timer = Timer.scheduled(after: .zero, forMode: .custom) { _ in }
                loop.add(timer, forMode: .modalPanel)
                let report = reports.wait { $0.first }
                #expect(
                    report.text.hasSuffix(": it is only in modalPanel and 'custom', which have never run."),
                    "\(report)")
                timer.invalidate()
            }
        }
        #expect(result != nil)
    }

    // MARK: While the program hangs

    @Test func `what is due where nothing runs is reported while the program hangs`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let loop = RunLoop.current
                let periodic = Timer.scheduled(every: .seconds(1_000), label: "not due") { _ in }
                Timer.scheduled(after: .zero, forMode: .custom, label: "misplaced") { _ in }
                let source = RunLoop.Source(label: "signalled") {}
                loop.add(source, forMode: .custom)
                source.signal()
                let waiter = try JoinableThread {
                    reports.wait { $0.count >= 2 ? () : nil }
                    loop.stop()
                }
                loop.run(in: .default)
                waiter.join()
                periodic.invalidate()
            }
            // The end of the loop reports the same once more.
            let texts = reports.value.prefix(2).map(\.text)
            #expect(reports.value.allSatisfy { $0.kind == .unservedItems })
            #expect(
                texts.contains {
                    $0.hasPrefix("The timer 'misplaced' (") && $0.contains(" has been due for ")
                })
            #expect(
                texts.contains { $0.hasPrefix("The source 'signalled' (") && $0.contains("is signalled") })
            #expect(texts.allSatisfy { $0.contains("only in 'custom', which has never run") }, "\(texts)")
        }
        #expect(result != nil)
    }

    @Test func `a block on a loop that nothing runs is reported while the program hangs`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                RunLoop.current.perform {}
                let report = reports.wait { $0.first }
                #expect(
                    report.text.contains(" has 1 block or executor in default, and has never run"),
                    "\(report)")
                RunLoop.current.poll()
            }
        }
        #expect(result != nil)
    }

    @Test func `what tasks wait for in modes that never run is reported`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await withRunLoopThread(name: "tasks") { thread in
                let (loop, pipe) = (thread.runLoop, try TestPipe())
                pipe.put()
                let tasks = [
                    Task { try await loop.clock(inModes: [.custom]).sleep(for: .milliseconds(200)) },
                    Task { for await _ in loop.ticks(every: .milliseconds(1), inModes: [.custom]) {} },
                    Task {
                        for try await _ in loop.readiness(
                            of: pipe.readEnd, for: .readable, inModes: [.custom])
                        {}
                    },
                ]
                try await onItsOwnThread { reports.wait { $0.count >= 3 ? () : nil } }
                for task in tasks { task.cancel() }
                for task in tasks { _ = await task.result }
                let texts = reports.value.map(\.text)
                #expect(reports.value.allSatisfy { $0.kind == .unservedItems })
                #expect(
                    texts.count { $0.hasPrefix("The timer (ReactorTests/ReportTests.swift:") } == 2,
                    "\(texts)")
                let source = "The source of descriptor \(pipe.readEnd.rawValue) has something to report: "
                #expect(texts.contains { $0.hasPrefix(source) }, "\(texts)")
            }
        }
    }

    @Test func `a mailbox that nothing serves has something to deliver`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let mailbox = Mailbox<Int>(label: "answers") { _, _ in }
                mailbox.post(1)
                let report = reports.wait { $0.first }
                #expect(
                    report.text.hasPrefix("The mailbox 'answers' (")
                        && report.text.contains(") has something to deliver: "), "\(report)")
                mailbox.close()
            }
        }
        #expect(result != nil)
    }

    // MARK: Descriptors, the main queue and signals

    @Test func `a descriptor that is ready in modes that never run is reported, a quiet one is not`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let (loop, ready, quiet) = (RunLoop.current, try TestPipe(), try TestPipe())
                loop.hold(.default)
                loop.poll()
                ready.put()
                let sources = [(ready, "ready"), (quiet, "quiet"), (ready, "removed")].map { pipe, label in
                    DescriptorSource(pipe.readEnd, for: .readable, label: label) { _, _ in }
                }
                for source in sources { try loop.add(source, forMode: .custom) }
                loop.remove(sources[2], forMode: .custom)
                let report = reports.wait { $0.first }
                #expect(report.text.contains(" 'ready' ("), "\(report)")
                #expect(
                    report.text.hasSuffix(
                        " has something to report: it is only in 'custom', which has never run."))
                #expect(reports.value.count == 1, "\(reports.value)")
                for source in sources { source.cancel() }
            }
        }
    }

    @Test func `a main queue that the running mode does not serve is explained and reported`() async {
        await #expect(processExitsWith: .success) {
            setenv("REACTOR_DEBUG", "1", 1)
            let lines = try await probeMainLoop("a main queue that waits")
            try #require(lines.count == 2, "\(lines)")
            #expect(lines[0].hasPrefix("The main run loop is busy in 'custom'"), "\(lines)")
            #expect(
                lines[0].hasSuffix(" The main queue and the main actor wait for the common modes."),
                "\(lines)")
            #expect(
                lines[1]
                    == "The main queue has something to report: it is only in the common modes, which have never run.",
                "\(lines)")
        }
    }

    @Test func `a signal without a wake-up is reported while the loop sleeps`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await withRunLoopThread(name: "sleeper") { thread in
                let (loop, source) = (thread.runLoop, RunLoop.Source(label: "redraw") {})
                loop.performAndWait { RunLoop.current.add(source, forMode: .default) }
                // The loop may make one more pass before it sleeps.
                waitUntil {
                    if !source.isSignalled { source.signal() }
                    return !reports.value.isEmpty
                }
                let report = reports.value[0]
                #expect(report.text.contains("'redraw' ("), "\(report)")
                #expect(report.text.contains("is signalled: a signal does not wake the run loop "))
                source.invalidate()
            }
        }
    }

    @Test func `the debug mode's thread receives none of the program's signals`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.isDebugging = true
            try onAThread { Timer.scheduled(after: .seconds(100)) { _ in } }
            let threads = try ProcessThreads.all()
            let thread = try #require(threads.first { $0.name == "reactor.debug" })
            #expect(thread.blockedSignals & (1 << UInt64(SIGUSR2 - 1)) != 0)
        }
    }

    // MARK: The switches

    @Test func `debugging and measuring are switched independently`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.isDebugging = true
            #expect(LoopDiagnostics.measuresCallbacks)
            LoopDiagnostics.isDebugging = false
            #expect(!LoopDiagnostics.measuresCallbacks)
            LoopDiagnostics.measuresCallbacks = true
            LoopDiagnostics.isDebugging = true
            LoopDiagnostics.measuresCallbacks = false
            #expect(LoopDiagnostics.isDebugging && LoopDiagnostics.measuresCallbacks)
            LoopDiagnostics.measuresCallbacks = true
            LoopDiagnostics.isDebugging = false
            #expect(!LoopDiagnostics.isDebugging && LoopDiagnostics.measuresCallbacks)
        }
    }

    @Test func `a report to a closed pipe raises no signal`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGPIPE, SIG_DFL)
            let pipe = try FileDescriptor.pipe()
            try pipe.readEnd.close()
            _ = try pipe.writeEnd.duplicate(as: .standardError)
            LoopDiagnostics.isDebugging = true
            try onAThread { RunLoop.current.perform {} }
            // The end of an exit test writes to standard error, too.
            _exit(0)
        }
    }

    @Test func `a program's thread is no pool's, whatever its name`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            let thread = try JoinableThread(name: "qos-probe") {
                RunLoop.current.perform {}
                RunLoop.current.poll()
            }
            thread.join()
        }
        #expect(result.message.isEmpty, "\(result.message)")
    }
}

/// The threads of the process, from /proc.
private enum ProcessThreads {
    struct Thread {
        let name: String
        let blockedSignals: UInt64
    }

    static func all() throws -> [Thread] {
        try ChildProcess.output(of: "cat /proc/$PPID/task/*/status 2>/dev/null || true").split(
            separator: "\n"
        )
        .reduce(into: [(String, UInt64)]()) { threads, line in
            let fields = line.split(separator: "\t")
            guard fields.count == 2 else { return }
            if fields[0] == "Name:" { threads.append((String(fields[1]), 0)) }
            if fields[0] == "SigBlk:" {
                threads[threads.count - 1].1 = UInt64(fields[1], radix: 16) ?? 0
            }
        }.map { Thread(name: $0.0, blockedSignals: $0.1) }
    }
}
