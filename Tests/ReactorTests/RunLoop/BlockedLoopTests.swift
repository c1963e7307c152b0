import Dispatch
import Glibc
import ReactorTestSupport
import ReactorTesting
import Testing

#if DEBUG
@testable import Reactor
#else
import Reactor
#endif

/// What the debug mode reports of a callback that keeps its loop busy, before that returns. Each in a process of its own.
/// The debug mode reports what has lasted for a second, which takes longer on a busy machine.
@Suite(.runLoop(timeLimit: .seconds(30))) struct BlockedLoopTests {
    @Test func `a callback is reported while it lasts, again at ten times the limit, and when it returns`()
        async
    {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.slowCallback = .milliseconds(10)
            let reports = try debugged { loop, reports in
                let pipe = try TestPipe()
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
            }
            for name in ["timer 'poll' (ReactorTests/", "'bell' (ReactorTests/", "block", "job"] {
                let kinds = reports.filter { $0.text.contains(name) }.map(\.kind)
                #expect(kinds == ["blockedLoop", "blockedLoop", "slowCallback"], "\(name) in \(reports)")
            }
        }
    }

    @Test func `a report and an explanation name the call in which a callback waits`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.slowCallback = .milliseconds(10)
            let server = try RunLoopThread(name: "server")
            let explanation = Shared("")
            let reports = try debugged { loop, reports in
                let (full, empty) = (try TestPipe(), try TestPipe())
                let isAnswered = Answer<Bool>()
                let input = InputStream(descriptor: empty.readEnd)
                let output = OutputStream(descriptor: full.writeEnd)
                for stream in [input, output] { stream.open() }
                let size = 65_537
                let release = try JoinableThread {
                    reports.waitForWait(in: "OutputStream.write")
                    explanation.value = loop.explain()
                    let drain = InputStream(descriptor: full.readEnd)
                    drain.open()
                    var rest = size
                    while rest > 0 { rest -= drain.read(upTo: rest).count }
                    reports.waitForWait(in: "InputStream.read")
                    empty.put()
                    reports.waitForWait(in: "RunLoop.performAndWait")
                    isAnswered.give(true)
                }
                let bytes = [UInt8](repeating: 0, count: size)
                let calls = [
                    ("writer", { _ = output.write(bytes) }), ("reader", { _ = input.read(upTo: 1) }),
                    ("client", { server.runLoop.performAndWait {} }),
                ]
                for (label, call) in calls {
                    if label == "client" { server.runLoop.perform { _ = isAnswered.wait() } }
                    Timer.scheduled(after: .zero, label: label) { _ in call() }
                    loop.poll()
                }
                release.join()
            }
            await server.shutDown()
            for (label, call) in [
                ("writer", "OutputStream.write"), ("reader", "InputStream.read"),
                ("client", "RunLoop.performAndWait"), ("client", "'server'"),
            ] {
                #expect(reports.naming(label).contains { $0.text.contains(call) }, "\(reports)")
            }
            #expect(
                explanation.value.contains("'writer'") && explanation.value.contains("OutputStream.write"))
        }
    }

    @Test func `a callback that runs the loop, or its host, keeps it from nothing, however long that sleeps`()
        async
    {
        await #expect(processExitsWith: .success) {
            let other = try RunLoopThread(name: "other")
            let reports = try debugged { loop, reports in
                loop.hold(.inner)
                // As long as it takes to report another loop.
                let blockOther = { @Sendable in
                    let count = reports.value.count
                    other.runLoop.perform {
                        reports.wait { $0.count > count ? () : nil }
                        loop.stop()
                    }
                }
                Timer.scheduled(after: .zero, label: "dialog") { _ in
                    blockOther()
                    loop.run(in: .inner)
                }
                loop.poll()
                let hosting = try RunLoop.Hosting(loop)
                Timer.scheduled(after: .zero, label: "hosted dialog") { _ in
                    hosting.prepare()
                    blockOther()
                    var request = pollfd(fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
                    repeat { while poll(&request, 1, -1) < 0 {} } while hosting.dispatch()
                }
                for _ in 0..<2 { hosting.dispatch() }
                hosting.end()
                other.runLoop.performAndWait {}
            }
            await other.shutDown()
            for label in ["dialog", "hosted dialog"] { #expect(reports.naming(label).isEmpty, "\(reports)") }
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
            reports.contains { $0.kind == "blockedLoop" && $0.text.contains(call) } ? () : nil
        }
    }
}
