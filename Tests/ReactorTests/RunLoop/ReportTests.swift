import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

extension [LoopDiagnostics.Report] {
    /// The reports that name the item with this label.
    func naming(_ label: String) -> [LoopDiagnostics.Report] { filter { $0.text.contains("'\(label)'") } }
}

/// Debugs `body`, which runs on a thread of its own, until that has ended, and returns the reports.
func debugged(
    _ body: @escaping @Sendable (RunLoop, Shared<[LoopDiagnostics.Report]>) throws -> Void
) throws -> [LoopDiagnostics.Report] {
    let reports = debuggedReports()
    try onAThread { try body(.current, reports) }
    return reports.value
}

/// Which programs the debug mode reports, and which correct ones it does not. Each in a process of its own.
/// The debug mode reports what has lasted for a second, which takes longer on a busy machine.
@Suite(.runLoop(timeLimit: .seconds(30))) struct ReportTests {
    // MARK: What is left at the end

    @Test func `a loop that ends reports what is due or misplaced, and nothing that it has served`() async {
        await #expect(processExitsWith: .success) {
            let reports = try debugged { loop, _ in
                for mode in [RunLoop.Mode.default, .tracking] {
                    for kind in Kind.allCases { try kind.makeItem {}.add(to: loop, mode) }
                }
                Timer.scheduled(every: .seconds(100), label: "periodic") { _ in }
                Timer.scheduled(after: .seconds(100), label: "idle") { _ in }
                Timer.scheduled(every: .seconds(100), forMode: .custom, label: "misplaced") { _ in }
                for mode in [RunLoop.Mode.default, .tracking] { loop.poll(mode) }
                Timer.scheduled(after: .zero, label: "late") { _ in }.fireDate.busyWait()
            }
            for label in ["periodic", "idle"] { #expect(reports.naming(label).isEmpty, "\(reports)") }
            for label in ["misplaced", "late"] { #expect(reports.naming(label).count == 1, "\(reports)") }
            #expect(reports.naming("custom").count == 1, "\(reports)")
            #expect(reports.naming("late")[0].text.contains("ReactorTests/ReportTests.swift:"))
        }
    }

    @Test func `an item in several modes is reported once, and not if one of them, or another loop, has run`()
        async
    {
        await #expect(processExitsWith: .success) {
            #expect(
                try debugged { loop, _ in
                    let timer = Timer(interval: .seconds(100), repeats: true) { _ in }
                    let (source, pipe) = (RunLoop.Source {}, try TestPipe())
                    let event = DescriptorSource(pipe, Trace(), "")
                    for item in [timer, source, event] as [any TestItem] {
                        for mode in [RunLoop.Mode.default, .tracking] { try item.add(to: loop, mode) }
                    }
                    loop.poll()
                } == [])
            let source = RunLoop.Source(label: "shared") {}
            let server = try RunLoopThread(name: "server")
            server.runLoop.performSynchronously { RunLoop.current.add(source, forMode: .default) }
            let reports = try debugged { loop, _ in
                loop.add(source, forMode: .custom)
                for _ in 0..<1000 {
                    let timer = Timer.scheduled(after: .seconds(100), forMode: .custom, label: "idle") { _ in
                    }
                    loop.add(timer, forMode: .inner)
                }
            }
            source.invalidate()
            await server.shutDown()
            #expect(reports.naming("shared").isEmpty, "\(reports)")
            #expect(reports.naming("idle").count == 1 && numbers(in: reports[0].text) == [1000], "\(reports)")
        }
    }

    @Test func `a block for several modes is reported once, also an ordered one`() async {
        await #expect(processExitsWith: .success) {
            let reports = try debugged { loop, _ in
                for _ in 0..<2 { loop.perform(inModes: [.tracking, .custom]) {} }
                loop.perform(inModes: [.custom]) {}
            }
            #expect(numbers(in: reports[0].text).sorted() == [1, 2], "\(reports)")
            let ordered = try debugged { loop, _ in
                loop.perform(order: 0, inModes: [.tracking, .custom]) {}
                #expect(numbers(in: loop.explain()) == [1])
                loop.hold(.default)
                loop.poll()
                loop.perform(order: 0, inModes: [.default, .outer]) {}
            }
            #expect(ordered.flatMap { numbers(in: $0.text) } == [1, 1], "\(ordered)")
            for mode in ["custom", "outer"] { #expect(ordered.naming(mode).count == 1, "\(ordered)") }
        }
    }

    /// The lines that a scenario of `main-loop-probe` prints, and its reports.
    private func debuggedProbe(_ scenario: String) throws -> (output: [Substring], reports: [Substring]) {
        let program = "\(Child.folder)/main-loop-probe"
        let child = try Child("/usr/bin/env", ["REACTOR_DEBUG=1", program, scenario])
        let (output, errors) = (child.readOutput(), child.readErrors())
        #expect(child.wait() == .exit(0))
        return (output.split(separator: "\n"), errors.split(separator: "\n"))
    }

    @Test(arguments: ["left at exit", "debugging that begins late"])
    func `the main loop reports at exit what it has not served`(scenario: String) throws {
        let reports = try debuggedProbe(scenario).reports
        #expect(reports.count == 1)
        #expect(
            reports.first?.contains("timer 'forgotten' (main_loop_probe/main.swift:") == true, "\(reports)")
    }

    @Test func `what the pass that exits would have served is not reported`() throws {
        #expect(try debuggedProbe("exit in a timer").reports == [])
    }

    // MARK: While the program hangs

    @Test func `what is due where nothing runs is reported while the program hangs`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            let stuck = try RunLoopThread(name: "stuck")
            let (begun, over) = (Answer<Void>(), Answer<Void>())
            let idle = try JoinableThread(name: "idle") {
                RunLoop.current.perform {}
                let mailbox = Mailbox<Int>(label: "answers") { _, _ in }
                mailbox.post(1)
                begun.give(())
                over.wait()
                mailbox.close()
            }
            begun.wait()
            let (ready, quiet) = (try TestPipe(), try TestPipe())
            ready.put()
            stuck.runLoop.performSynchronously {
                let loop = RunLoop.current
                Timer.scheduled(every: .seconds(1_000), label: "not due") { _ in }
                let misplaced = Timer.scheduled(after: .zero, forMode: .custom, label: "misplaced") { _ in }
                loop.add(misplaced, forMode: .modalPanel)
                let source = RunLoop.Source(label: "signalled") {}
                loop.add(source, forMode: .custom)
                source.signal()
                for (pipe, label) in [(ready, "ready"), (quiet, "quiet"), (ready, "removed")] {
                    let source = DescriptorSource(pipe.readEnd, for: .readable, label: label) { _, _ in }
                    try? loop.add(source, forMode: .custom)
                    if label == "removed" { loop.remove(source, forMode: .custom) }
                }
            }
            let unwoken = RunLoop.Source(label: "unwoken") {}
            stuck.runLoop.add(unwoken, forMode: .default)
            stuck.runLoop.performSynchronously {}
            stuck.untilAsleep()
            unwoken.signal()
            let labels = ["misplaced", "signalled", "ready", "answers", "unwoken"]
            reports.wait { reports in
                labels.allSatisfy { !reports.naming($0).isEmpty }
                    && reports.contains { $0.text.contains("1 block") }
                    ? () : nil
            }
            #expect(reports.value.allSatisfy { $0.kind == "unservedItems" })
            #expect(reports.value.count == labels.count + 1, "\(reports.value)")
            #expect(reports.value.naming("misplaced")[0].text.contains("modalPanel and 'custom'"))
            #expect(reports.value.naming("unwoken")[0].text.contains("does not wake"))
            over.give(())
            idle.join()
        }
    }

    @Test func `what tasks wait for in modes that never run is reported`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await withRunLoopThread(name: "tasks") { thread in
                let (loop, pipe) = (thread.runLoop, try TestPipe())
                pipe.put()
                let tasks = [
                    // Not so short that it is over before it begins: that needs no timer.
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
                #expect(reports.value.allSatisfy { $0.kind == "unservedItems" })
                let places = reports.value.filter {
                    $0.text.contains("timer (ReactorTests/ReportTests.swift:")
                }
                #expect(places.count == 2, "\(reports.value)")
                let number = pipe.readEnd.rawValue
                #expect(
                    reports.value.contains { $0.text.contains("descriptor \(number) ") }, "\(reports.value)")
            }
        }
    }

    @Test func `a main queue that the running mode does not serve is explained and reported`() throws {
        let lines = try debuggedProbe("a main queue that waits").output
        try #require(lines.count == 2, "\(lines)")
        #expect(lines[0].contains("'custom'") && lines[0].contains("main actor"), "\(lines)")
        #expect(lines[1].contains("main queue"), "\(lines)")
    }

    @Test func `a main-actor task that blocks the main loop forever is reported`() throws {
        let lines = try debuggedProbe("a main actor that hangs").output
        #expect(lines.count == 1)
        #expect(lines.first?.contains("job of the main actor") == true, "\(lines)")
    }

    // MARK: The switches

    @Test func `debugging and measuring are switched independently`() async {
        await #expect(processExitsWith: .success) {
            for isMeasuring in [false, true] {
                LoopDiagnostics.measuresCallbacks = isMeasuring
                LoopDiagnostics.isDebugging = true
                #expect(LoopDiagnostics.measuresCallbacks)
                LoopDiagnostics.isDebugging = false
                #expect(LoopDiagnostics.measuresCallbacks == isMeasuring)
            }
        }
    }

    @Test func `in debug mode a loop of a pool's thread is reported, and no other thread's`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            // A program's thread is no pool's, whatever its name.
            try JoinableThread(name: "qos-probe") {
                RunLoop.current.perform {}
                RunLoop.current.poll()
            }.join()
            let thread = try RunLoopThread(name: "network")
            thread.runLoop.performSynchronously {}
            await MainActor.run { RunLoop.main.perform(inModes: [.common]) {} }
            #expect(reports.value.isEmpty, "\(reports.value)")
            DispatchQueue.global().async { Timer.scheduled(after: .zero) { _ in } }
            #expect(reports.wait { $0.first }.kind == "runLoopOnPoolThread")
        }
    }

    @Test(arguments: ["timer", "mailbox", "lookup", "reader"])
    func `in debug mode a task of the pool that needs its thread's loop is reported with the remedy`(
        kind: String
    ) async {
        await #expect(processExitsWith: .success) { [kind] in
            let reports = debuggedReports()
            await Task.detached {
                switch kind {
                case "timer": Timer.scheduled(after: .seconds(1)) { _ in }
                case "mailbox": _ = Mailbox<Int> { _, _ in }
                case "lookup": Resolver.resolve(host: "127.0.0.1", port: 1) { _ in }
                default: _ = LineReader(InputStream(path: "/dev/null"), into: 0, on: .global()) { _, _, _ in }
                }
            }.value
            let report = reports.wait { $0.first }
            #expect(report.kind == "runLoopOnPoolThread" && report.text.contains("on the main actor"))
        }
    }

    @Test func `in debug mode a listener reports that it backs off, though it has no closure for that`() async
    {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try onAThread {
                let loop = RunLoop.current
                let listener = try Listener(.ipv4Loopback(port: 0), handler: { _, _ in }, acceptErrors: nil)
                try loop.add(listener, forMode: .default)
                loop.poll()
                let client = try SocketPeer(connectedTo: listener.localAddress)
                var limit = rlimit(rlim_cur: 0, rlim_max: 1024)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                loop.serve { listener.acceptError != nil }
                limit.rlim_cur = limit.rlim_max
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let report = try #require(reports.value.first { $0.kind == "acceptError" })
                #expect(report.text.contains("\(Errno.tooManyOpenFiles)"))
                withExtendedLifetime(client) {}
            }
        }
    }

    @Test func `a report to a closed pipe raises no signal, and the debug mode's thread receives none`() async
    {
        await #expect(processExitsWith: .success) {
            signal(SIGPIPE, SIG_DFL)
            let pipe = try FileDescriptor.pipe()
            try pipe.readEnd.close()
            _ = try pipe.writeEnd.duplicate(as: .standardError)
            LoopDiagnostics.isDebugging = true
            try onAThread { RunLoop.current.perform {} }
            waitUntil { ownThreads(named: "reactor.debug") == 1 }
            precondition(blockedSignals(ofThread: "reactor.debug") & (1 << UInt64(SIGUSR2 - 1)) != 0)
            // The end of an exit test writes to standard error, too.
            _exit(0)
        }
    }
}

/// The signals that a thread of this process blocks, as a mask.
private func blockedSignals(ofThread name: String) -> UInt64 {
    for task in entries(of: "/proc/self/task") {
        let bytes = content(of: "/proc/self/task/\(task)/status") ?? []
        let fields = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isWhitespace)
        guard fields.count > 1, fields[1] == name, let index = fields.firstIndex(of: "SigBlk:") else {
            continue
        }
        return UInt64(fields[index + 1], radix: 16) ?? 0
    }
    return 0
}
