import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Which streams the debug mode reports, and which of correct programs it does not. Each in a process of its own.
/// The debug mode reports what has lasted for a second, which takes longer on a busy machine.
@Suite(.runLoop(timeLimit: .seconds(30))) struct StreamReportTests {
    @Test func `a silent stream is reported: not open, without a delegate, or with one that has no method`()
        async
    {
        await #expect(processExitsWith: .success) {
            let labels = ["unopened", "dropped", "mute", "failed", "ended"]
            let reports = try debugged { loop, reports in
                let (pipe, delegate) = (try TestPipe(), Mute())
                pipe.put()
                let streams = [
                    InputStream(descriptor: pipe.readEnd), InputStream(descriptor: pipe.readEnd),
                    InputStream(descriptor: pipe.readEnd), InputStream(path: "/nowhere/at/all"),
                    InputStream(data: []),
                ]
                for (stream, label) in zip(streams, labels) {
                    stream.label = label
                    if label != "dropped" { stream.delegate = delegate }
                    stream.schedule(in: loop, forMode: .default)
                    if label != "unopened" { stream.open() }
                }
                try reports.run(loop, untilCount: labels.count)
                streams[0].remove(from: loop, forMode: .default)
                for stream in streams { stream.close() }
                withExtendedLifetime(delegate) {}
            }
            #expect(reports.allSatisfy { $0.kind == "silentStream" }, "\(reports)")
            for (label, part) in zip(
                labels, ["open()", "delegate", "stream(_:handle:)", "errorOccurred", "endEncountered"])
            {
                #expect(reports.naming(label).map { $0.text.contains(part) } == [true], "\(reports)")
            }
        }
    }

    @Test func `streams that are read, written or used, with or without a delegate, are not silent`() async {
        await #expect(processExitsWith: .success) {
            let reports = try debugged { loop, reports in
                let delegate = HandlerDelegate { _, _ in }
                let pipes = try (0..<5).map { _ in try TestPipe() }
                // Nothing to read, a delegate that waits before it reads, one that comes and goes, and a stream that is
                // read without a delegate.
                let inputs = pipes.dropLast().map { InputStream(descriptor: $0.readEnd) }
                inputs[1].delegate = delegate
                // One that is only written.
                let output = OutputStream(descriptor: pipes[4].writeEnd)
                for stream in inputs + [output] {
                    stream.schedule(in: loop, forMode: .default)
                    stream.open()
                }
                for pipe in pipes[1...2] { pipe.put() }
                // A mistake, whose report comes after two looks at the others.
                let unopened = InputStream(descriptor: pipes[0].readEnd)
                unopened.label = "unopened"
                unopened.schedule(in: loop, forMode: .default)
                while reports.value.isEmpty {
                    pipes[3].put()
                    loop.run(in: .default, until: .after(milliseconds: 1))
                    if inputs[3].hasBytesAvailable { _ = inputs[3].read(upTo: 16) }
                    inputs[2].delegate = inputs[2].delegate == nil ? delegate : nil
                }
                unopened.remove(from: loop, forMode: .default)
                for stream in inputs + [output] { stream.close() }
            }
            #expect(reports.count == 1 && reports.naming("unopened").count == 1, "\(reports)")
        }
    }

    @Test func `an open stream with a delegate is reported if it was never scheduled, read or written`() async
    {
        await #expect(processExitsWith: .success) {
            let reports = try debugged { loop, reports in
                let delegate = HandlerDelegate { _, _ in }
                func open(_ label: String, _ delegate: HandlerDelegate?) -> InputStream {
                    let stream = InputStream(data: [1, 2, 3])
                    (stream.label, stream.delegate) = (label, delegate)
                    stream.open()
                    return stream
                }
                var streams = [open("forgotten", delegate), open("read", delegate), open("alone", nil)]
                let paused = open("paused", delegate)
                _ = streams[1].read(upTo: 1)
                paused.schedule(in: loop, forMode: .default)
                loop.poll()
                paused.remove(from: loop, forMode: .default)
                reports.wait { $0.isEmpty ? nil : () }
                // By its report there have been two more looks at the others.
                streams += [paused, open("later", delegate)]
                reports.wait { $0.count > 1 ? () : nil }
                for stream in streams { stream.close() }
            }
            #expect(reports.map(\.kind) == ["silentStream", "silentStream"])
            for label in ["forgotten", "later"] { #expect(reports.naming(label).count == 1, "\(reports)") }
        }
    }

    @Test func `a child that waits because no code reads its output is reported`() async {
        await #expect(processExitsWith: .success) {
            _ = try debugged { _, reports in
                // One that has written a little may be read when it has ended.
                let scripts = ["echo done; exec cat", "exec cat /dev/zero", "exec cat /dev/zero"]
                let children = try scripts.map { script in
                    try ChildProcess.spawn(
                        .init("/bin/sh", ["-c", script], standardInput: .stream, standardOutput: .stream))
                }
                children[2].standardOutput!.open()
                reports.wait { $0.count > 1 ? () : nil }
                #expect(reports.value.map(\.kind) == ["silentStream", "silentStream"])
                for child in children.dropFirst() {
                    let name = "process \(child.process.processIdentifier) "
                    #expect(reports.value.contains { $0.text.contains(name) }, "\(reports.value)")
                }
                for child in children {
                    try child.process.send(.kill)
                    _ = child.process.wait()
                }
            }
        }
    }

    @Test func `a stream that is released before it has delivered anything is reported, and no other`() async
    {
        await #expect(processExitsWith: .success) {
            let reports = try debugged { loop, _ in
                let (pipe, delegate) = (try TestPipe(), HandlerDelegate { _, _ in })
                func start(_ stream: InputStream, _ label: String) {
                    stream.label = label
                    stream.delegate = delegate
                    stream.schedule(in: loop, forMode: .default)
                    stream.open()
                    if label == "closed" { stream.close() }
                    if label == "served" || label == "failed" { loop.poll() }
                }
                start(InputStream(descriptor: pipe.readEnd), "orders")
                start(InputStream(descriptor: pipe.readEnd), "closed")
                start(InputStream(descriptor: pipe.readEnd), "served")
                start(InputStream(path: "/nowhere/at/all"), "failed")
            }
            #expect(reports.map(\.kind) == ["releasedStream"], "\(reports)")
            #expect(reports.naming("orders").count == 1)
        }
    }
}

extension Shared where Value == [LoopDiagnostics.Report] {
    /// Runs the loop until there are `count` reports.
    fileprivate func run(_ loop: RunLoop, untilCount count: Int) throws {
        let waiter = try JoinableThread {
            self.wait { $0.count >= count ? () : nil }
            loop.stop()
        }
        loop.hold(.default)
        loop.run(in: .default)
        waiter.join()
    }
}

private final class Mute: StreamDelegate {}
