import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Which streams the debug mode reports, and which of correct programs it does not. Each in a process of its own.
@Suite(.runLoop) struct StreamReportTests {
    @Test func `a silent stream is reported: not open, without a delegate, or with one that has no method`()
        async
    {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let (loop, pipe, delegate) = (RunLoop.current, try TestPipe(), Mute())
                pipe.put()
                let streams = ["unopened", "dropped", "mute"].map { label in
                    let stream = InputStream(descriptor: pipe.readEnd)
                    stream.label = label
                    stream.schedule(in: loop, forMode: .default)
                    return stream
                }
                (streams[0].delegate, streams[2].delegate) = (delegate, delegate)
                for stream in streams.dropFirst() { stream.open() }
                let waiter = try JoinableThread {
                    reports.wait { $0.count >= 3 ? () : nil }
                    loop.stop()
                }
                loop.run(in: .default)
                waiter.join()
                let texts = reports.value.map(\.text)
                #expect(reports.value.allSatisfy { $0.kind == .silentStream }, "\(texts)")
                for (label, reason) in [
                    ("unopened", "is scheduled, but not open: call open()"),
                    ("dropped", "has no delegate: set one"),
                    ("mute", "to a delegate that does not implement stream(_:handle:)"),
                ] {
                    #expect(
                        texts.contains { $0.contains(" '\(label)' ") && $0.contains(reason) }, "\(texts)")
                }
                for stream in streams { stream.close() }
            }
        }
    }

    @Test func `streams that are read, written or used without a delegate are not silent`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try await onItsOwnThread {
                let (loop, delegate) = (RunLoop.current, Ignorant())
                // Nothing to read, a delegate that waits before it reads, and an output that is only written.
                let (quiet, unread, sink) = (try TestPipe(), try TestPipe(), try TestPipe())
                let inputs = [quiet, unread].map { InputStream(descriptor: $0.readEnd) }
                inputs[1].delegate = delegate
                let output = OutputStream(descriptor: sink.writeEnd)
                for stream in inputs + [output] {
                    stream.schedule(in: loop, forMode: .default)
                    stream.open()
                }
                unread.put()
                // A mistake, whose report comes after two looks at the others.
                let reports = debuggedReports()
                let unopened = InputStream(descriptor: quiet.readEnd)
                unopened.schedule(in: loop, forMode: .default)
                let waiter = try JoinableThread {
                    _ = reports.wait { $0.first }
                    loop.stop()
                }
                loop.run(in: .default)
                waiter.join()
                #expect(reports.value.count == 1, "\(reports.value)")
                for stream in inputs + [output, unopened] { stream.close() }
            }
        }
        #expect(result.message.isEmpty, "\(result.message)")
    }

    @Test func `a stream that is read without a delegate, or whose delegate comes and goes, is not silent`()
        async
    {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try await onItsOwnThread {
                let (loop, polled, shared, idle) =
                    (RunLoop.current, try TestPipe(), try TestPipe(), try TestPipe())
                let inputs = [polled, shared].map { InputStream(descriptor: $0.readEnd) }
                for input in inputs {
                    input.schedule(in: loop, forMode: .default)
                    input.open()
                }
                // Another mistake, whose report comes after two looks at the others.
                let unopened = InputStream(descriptor: idle.readEnd)
                unopened.schedule(in: loop, forMode: .default)
                let reports = debuggedReports()
                let delegate = Ignorant()
                shared.put()
                while reports.value.isEmpty {
                    polled.put()
                    loop.run(in: .default, until: .after(milliseconds: 1))
                    if inputs[0].hasBytesAvailable { _ = inputs[0].read(upTo: 16) }
                    inputs[1].delegate = inputs[1].delegate == nil ? delegate : nil
                }
                #expect(reports.value.count == 1, "\(reports.value)")
                #expect(reports.value.first?.text.contains("not open") == true, "\(reports.value)")
                for stream in inputs + [unopened] { stream.close() }
            }
        }
        #expect(result.message.isEmpty, "\(result.message)")
    }

    @Test func `an open stream with a delegate is reported if it was never scheduled, read or written`()
        async
    {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let (loop, delegate) = (RunLoop.current, Ignorant())
                func open(_ label: String, _ delegate: Ignorant?) -> InputStream {
                    let stream = InputStream(data: [1, 2, 3])
                    (stream.label, stream.delegate) = (label, delegate)
                    stream.open()
                    return stream
                }
                let forgotten = open("forgotten", delegate)
                let (read, alone) = (open("read", delegate), open("alone", nil))
                let paused = open("paused", delegate)
                _ = read.read(upTo: 1)
                paused.schedule(in: loop, forMode: .default)
                loop.poll()
                paused.remove(from: loop, forMode: .default)
                reports.wait { $0.isEmpty ? nil : () }
                // By its report there have been two more looks at the others.
                let later = open("later", delegate)
                reports.wait { $0.count > 1 ? () : nil }
                #expect(reports.value.allSatisfy { $0.kind == .silentStream })
                #expect(reports.value[0].text.contains(" 'forgotten' is open and has a delegate"))
                #expect(reports.value[1].text.contains(" 'later' is open and has a delegate"))
                for stream in [forgotten, read, alone, paused, later] { stream.close() }
            }
        }
    }

    @Test func `a child that waits because no code reads its output is reported`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                // One that has written a little may be read when it has ended.
                let quiet = try ChildProcess.shell("echo done; exec cat", standardInput: .stream)
                let unopened = try ChildProcess.shell("exec cat /dev/zero")
                let opened = try ChildProcess.shell("exec cat /dev/zero")
                opened.standardOutput!.open()
                reports.wait { $0.count > 1 ? () : nil }
                #expect(reports.value.allSatisfy { $0.kind == .silentStream })
                for child in [unopened, opened] {
                    let name =
                        "The input stream of process \(child.process.processIdentifier) (sh) is not being read"
                    #expect(reports.value.contains { $0.text.hasPrefix(name) }, "\(reports.value)")
                }
                #expect(reports.value.count == 2)
                for child in [quiet, unopened, opened] {
                    try child.process.send(SIGKILL)
                    _ = child.process.wait()
                }
            }
        }
    }

    @Test func `an end and an error for a delegate without a method are reported`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            try await onItsOwnThread {
                let (loop, delegate) = (RunLoop.current, Mute())
                let streams = [InputStream(path: "/nowhere/at/all"), InputStream(data: [])]
                for stream in streams {
                    stream.delegate = delegate
                    stream.schedule(in: loop, forMode: .default)
                    stream.open()
                }
                let waiter = try JoinableThread {
                    reports.wait { $0.count >= 2 ? () : nil }
                    loop.stop()
                }
                loop.hold(.default)
                loop.run(in: .default)
                waiter.join()
                let texts = reports.value.map(\.text)
                #expect(
                    texts.contains { $0.contains("has delivered errorOccurred to a delegate") }, "\(texts)")
                #expect(texts.contains { $0.contains("has delivered endEncountered to a del") }, "\(texts)")
                for stream in streams { stream.close() }
            }
        }
    }

    @Test func `a stream that has failed, or has delivered something, may be released`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try await onItsOwnThread {
                let (loop, pipe) = (RunLoop.current, try TestPipe())
                do {
                    let failed = InputStream(path: "/nowhere/at/all")
                    failed.schedule(in: loop, forMode: .default)
                    failed.open()
                    let delegate = Ignorant()
                    let served = InputStream(descriptor: pipe.readEnd)
                    served.delegate = delegate
                    served.schedule(in: loop, forMode: .default)
                    served.open()
                    loop.poll()
                    pipe.put()
                    loop.perform(order: 0) { withExtendedLifetime(delegate) {} }
                    served.delegate = nil
                    loop.poll()
                }
            }
        }
        #expect(!result.message.contains("was released"), "\(result.message)")
    }
}

private final class Mute: StreamDelegate {}

private final class Ignorant: StreamDelegate {
    func stream(_ stream: Stream, handle event: Stream.Event) {}
}
