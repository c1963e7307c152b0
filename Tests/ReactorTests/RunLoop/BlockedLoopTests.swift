import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

#if DEBUG
@testable import struct Reactor.ProcessPauses
#endif

/// What the debug mode reports of a callback that keeps its loop busy, before that returns. Each in a process of its own.
@Suite(.runLoop) struct BlockedLoopTests {
    @Test func `a callback is reported while it lasts, again at ten times the limit, and when it returns`()
        async
    {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            LoopDiagnostics.slowCallback = .milliseconds(20)
            try await onItsOwnThread {
                let (loop, pipe) = (RunLoop.current, try TestPipe())
                loop.hold(.default)
                pipe.put()
                Timer.scheduled(after: .zero, label: "poll") { _ in reports.waitForTwoMore() }
                let source = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { source, _ in
                    reports.waitForTwoMore()
                    source.cancel()
                }
                try loop.add(source, forMode: .default)
                loop.perform { reports.waitForTwoMore() }
                Task(executorPreference: loop.executor()) { reports.waitForTwoMore() }
                while reports.value.count < 12 { loop.run(in: .default, until: .after(milliseconds: 1)) }
                for name in [
                    "timer 'poll' (ReactorTests/BlockedLoopTests.swift:", " 'bell' (ReactorTests/",
                    "block posted by thread ", "job of the executor of the run loop ",
                ] {
                    let kinds = reports.value.filter { $0.text.contains(name) }.map(\.kind)
                    #expect(kinds == [.blockedLoop, .blockedLoop, .slowCallback], "\(reports.value)")
                }
            }
        }
    }

    @Test func `a main-actor task that blocks the main loop forever is reported`() async {
        await #expect(processExitsWith: .success) {
            setenv("REACTOR_DEBUG", "1", 1)
            let lines = try await probeMainLoop("a main actor that hangs")
            #expect(lines.count == 1)
            #expect(
                lines.first?.contains("job of the main actor has kept the main run loop busy for ") == true,
                "\(lines)")
        }
    }

    @Test func `a report and an explanation say what a callback waits for`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            LoopDiagnostics.slowCallback = .milliseconds(20)
            try await withRunLoopThread(name: "server") { server in
                try await onItsOwnThread {
                    let (loop, full, empty) = (RunLoop.current, try TestPipe(), try TestPipe())
                    let isAnswered = Answer<Bool>()
                    let explanations = Shared<[String]>([])
                    let input = InputStream(descriptor: empty.readEnd)
                    let output = OutputStream(descriptor: full.writeEnd)
                    for stream in [input, output] { stream.open() }
                    (input.label, output.label) = ("orders", "answers")
                    let release = try JoinableThread {
                        reports.waitForWait(in: "OutputStream.write")
                        explanations.update { $0.append(loop.explain()) }
                        let drain = InputStream(descriptor: full.readEnd)
                        drain.open()
                        var rest = 65_537
                        while rest > 0 { rest -= drain.read(upTo: rest).count }
                        reports.waitForWait(in: "InputStream.read")
                        empty.put()
                        reports.waitForWait(in: "RunLoop.performAndWait")
                        isAnswered.give(true)
                    }
                    Timer.scheduled(after: .zero, label: "writer") { _ in
                        _ = output.write([UInt8](repeating: 0, count: 65_537))
                    }
                    loop.poll()
                    Timer.scheduled(after: .zero, label: "reader") { _ in _ = input.read(upTo: 1) }
                    loop.poll()
                    server.runLoop.perform { _ = isAnswered.wait() }
                    Timer.scheduled(after: .zero, label: "client") { _ in server.runLoop.performAndWait {} }
                    loop.poll()
                    release.join()
                    for (timer, wait) in [
                        ("'writer'", "OutputStream.write, waiting for the output stream of descriptor "),
                        ("'reader'", "InputStream.read, waiting for the input stream of descriptor "),
                        ("'client'", "RunLoop.performAndWait, waiting for the run loop of thread 'server'"),
                    ] {
                        #expect(
                            reports.value.contains { $0.text.contains(timer) && $0.text.contains(wait) },
                            "\(reports.value)")
                    }
                    #expect(explanations.value[0].contains(", and is in OutputStream.write, waiting for "))
                }
            }
        }
    }

    @Test func `a callback that runs the loop keeps it from nothing, however long the loop sleeps`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await withRunLoopThread(name: "other") { other in
                try await onItsOwnThread {
                    let loop = RunLoop.current
                    loop.hold(.inner)
                    Timer.scheduled(after: .zero, label: "dialog") { _ in
                        // As long as it takes to report another loop twice.
                        other.runLoop.perform {
                            reports.waitForTwoMore()
                            loop.stop()
                        }
                        loop.run(in: .inner)
                    }
                    loop.poll()
                }
            }
            #expect(reports.value.allSatisfy { $0.text.contains("block posted by ") }, "\(reports.value)")
        }
    }

    @Test func `a handler that runs the host's loop is not slow`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try await onItsOwnThread {
                LoopDiagnostics.slowCallback = .milliseconds(200)
                let hosting = try RunLoop.Hosting(.current)
                let end = Deadline.after(milliseconds: 400)
                Timer.scheduled(every: .milliseconds(20), label: "ticker") { _ in }
                Timer.scheduled(after: .zero, label: "dialog") { _ in
                    var request = pollfd(
                        fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
                    hosting.prepare()
                    while Deadline.now < end {
                        poll(&request, 1, -1)
                        hosting.dispatch()
                    }
                    poll(&request, 1, 100)
                }
                hosting.dispatch()
                hosting.dispatch()
                let ledger = RunLoop.current.statistics.ledger
                let dialog = ledger.first { $0.name.contains("'dialog'") }
                #expect(dialog!.longest < .milliseconds(200), "\(ledger)")
                hosting.end()
            }
        }
        #expect(result.message.isEmpty, "\(result.message)")
    }

    @Test func `a slow completion of a hand-off is named by the hand-off`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let queue = DispatchQueue(label: "lines")
                let reader = LineReader(InputStream(path: "/etc/passwd"), into: 0, on: queue) { _, _, _ in }
                reader.label = "users"
                reader.start { _ in
                    reports.wait { $0.isEmpty ? nil : () }
                    RunLoop.current.stop()
                }
                RunLoop.current.run(in: .default)
                let report = reports.value.last
                #expect(report?.text.hasPrefix("The hand-off 'users' kept the run loop ") == true)
            }
        }
    }

    #if DEBUG

    @Test func `the time in which the process was stopped is no callback's`() {
        var pauses = ProcessPauses()
        let shortest = ProcessPauses.shortest
        pauses.beginSleep(50..<100)
        #expect(pauses.time(from: 0, to: 100 + shortest) == 0, "It may only be late.")
        #expect(pauses.time(from: 0, to: 101 + shortest) == 51 + shortest, "It has not woken up yet.")
        #expect(pauses.time(from: 100 + shortest, to: 101 + shortest) == 1)
        pauses.endSleep(at: 200 + shortest)
        #expect(
            pauses.time(from: 0, to: 1_000 + 9 * shortest) == 150 + shortest, "Awake, it may take its time.")
        #expect(pauses.time(from: 200 + shortest, to: 1_000 + 9 * shortest) == 0)
        for start in 1...Int64(ProcessPauses.mostPauses) {
            pauses.beginSleep(start * 1_000_000_000..<start * 1_000_000_000 + 1)
            pauses.endSleep(at: start * 1_000_000_000 + shortest + 2)
        }
        #expect(pauses.time(from: 0, to: .max) == Int64(ProcessPauses.mostPauses) * (shortest + 2))
    }

    #endif
}

extension Shared where Value == [LoopDiagnostics.Report] {
    /// Waits until there are two more reports than now.
    fileprivate func waitForTwoMore() {
        let count = value.count
        wait { $0.count >= count + 2 ? () : nil }
    }

    /// Waits for a report of a loop that is blocked in `call`.
    fileprivate func waitForWait(in call: String) {
        wait { reports in
            reports.contains { $0.kind == .blockedLoop && $0.text.contains(" It is in \(call), ") } ? () : nil
        }
    }
}
