import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffOwnershipTests {
    private typealias Report = HandoffReport<[UInt8]>

    /// Has a delegate hand off its stream at `event`, and read before that. Returns the result.
    private static func handOver(
        _ source: HandedStream, at event: Stream.Event, _ recorder: Recorder = Recorder()
    ) -> Report? {
        var report: Report?
        recorder.onEvent = { stream, received in
            guard let input = stream as? InputStream else { return }
            if received == event {
                Self.handOver(input) { report = $0 }
            } else if received == .hasBytesAvailable {
                _ = input.read(upTo: 100)
            }
        }
        source.stream.start(recorder)
        return runToTheEnd() ? report : nil
    }

    private static func handOver(_ stream: InputStream, _ body: @escaping (Report) -> Void) {
        ChunkHandoff(stream, to: Collector(), on: DispatchQueue(label: "taking over")).start { body($0) }
    }

    @Test(arguments: HandedKind.allCases, [Stream.Event.openCompleted, .hasBytesAvailable])
    func `a stream handed off in its delegate's callback is read to the end`(
        kind: HandedKind, event: Stream.Event
    ) throws {
        let source = try HandedStream(kind, fails: false)
        source.finish()
        let recorder = Recorder()
        let report = Self.handOver(source, at: event, recorder)
        #expect(report?.output == HandedStream.content)
        #expect(report?.ending.name == "finished")
        #expect(recorder.events.last == event)
    }

    @Test(arguments: HandedKind.allCases)
    func `a stream handed off at its end completes without bytes`(kind: HandedKind) throws {
        let source = try HandedStream(kind, fails: false)
        source.finish()
        let report = Self.handOver(source, at: .endEncountered)
        #expect(report?.ending.name == "finished")
        #expect(report?.byteCount == 0)
    }

    @Test(arguments: HandedKind.allCases)
    func `a hand-off removes its stream from its queue and its delegate`(kind: HandedKind) throws {
        let source = try HandedStream(kind, fails: false)
        let queue = DispatchQueue(label: "earlier")
        let opened = DispatchSemaphore(value: 0)
        let counter = EventCounter(opened)
        source.stream.delegate = counter
        source.stream.setDispatchQueue(queue)
        source.stream.open()
        opened.wait()
        queue.sync {}
        let before = counter.events.value
        let report = collect(source.stream) { _ in source.finish() }
        queue.sync {}
        #expect(report?.output == HandedStream.content)
        #expect(counter.events.value - before <= 1)  // one may have been on its way
    }

    @Test(arguments: HandedKind.allCases)
    func `a second hand-off of a stream fails and takes nothing from the first`(kind: HandedKind) async throws
    {
        try await onItsOwnThread {
            let source = try HandedStream(kind, fails: false)
            var (first, second): (Report?, Report?)
            Self.handOver(source.stream) { first = $0 }
            Self.handOver(source.stream) { second = $0 }
            source.finish()
            #expect(runToTheEnd())
            #expect(first?.output == HandedStream.content)
            #expect(first?.ending.name == "finished")
            #expect(second?.byteCount == 0)
            #expect(second?.ending.name == "failed: \(Errno.resourceBusy)")
        }
    }

    /// Repeated, because the processor is released shortly before the hand-off has ended.
    @Test(arguments: 0..<20)
    func `a cancelled hand-off of another one's stream completes`(_: Int) throws {
        let source = try HandedStream(.pipe, fails: false)
        let released = DispatchSemaphore(value: 0)
        var first: Report?
        Self.handOver(source.stream) { first = $0 }
        let second = ChunkHandoff(
            source.stream, to: ReleaseSignal(released), on: DispatchQueue(label: "second"))
        second.cancel()
        released.wait()
        var endings: [String] = []
        second.start { endings.append($0.ending.name) }
        source.finish()
        #expect(runToTheEnd())
        #expect(endings == ["cancelled"])
        #expect(first?.output == HandedStream.content)
    }

    @Test func `a stream whose hand-off has completed fails the next one`() {
        let stream = InputStream(data: [1, 2])
        #expect(collect(stream)?.ending.name == "finished")
        #expect(collect(stream)?.ending.name == "failed: \(Errno.badFileDescriptor)")
    }

    @Test(arguments: [HandedKind.memory, .pipe, .socket], [true, false])
    func `removing the stream from its loop ends the hand-off`(kind: HandedKind, isElsewhere: Bool)
        async throws
    {
        try await onItsOwnThread {
            let source = try HandedStream(kind, fails: false)
            let report = collect(source.stream, limits: HandoffLimits(chunkSize: 1, bytesInFlight: 1)) { _ in
                let (handed, loop) = (Carrier(source.stream), RunLoop.current)
                if isElsewhere {
                    onThreads(1) { _ in handed.value.remove(from: loop, forMode: .default) }
                } else {
                    source.stream.remove(from: loop, forMode: .default)
                }
            }
            #expect(report?.ending.name == "failed: \(Errno.badFileDescriptor)")
        }
    }

    @Test(arguments: [HandedKind.memory, .pipe, .socket], Theft.allCases)
    func `taking the stream away ends the hand-off`(kind: HandedKind, theft: Theft) throws {
        let source = try HandedStream(kind, fails: false)
        let other = try RunLoopThread(name: "other")
        let thief = EventCounter(DispatchSemaphore(value: 0))
        let report = collect(source.stream, limits: HandoffLimits(chunkSize: 1, bytesInFlight: 1)) { _ in
            theft.take(source.stream, from: .current, to: other.runLoop, thief)
        }
        other.stop()
        #expect(report?.ending.name == "failed: \(Errno.badFileDescriptor)")
    }

    @Test(arguments: HandedKind.allCases)
    func `a suspended hand-off has no observer that every pass calls`(kind: HandedKind) throws {
        let source = try HandedStream(kind, fails: false)
        let report = collect(source.stream) { handoff in
            handoff.suspend()
            RunLoop.current.poll()
            #expect(!"\(RunLoop.current)".contains("observer"))
            source.finish()
            handoff.resume()
        }
        #expect(report?.output == HandedStream.content)
    }

    @Test(arguments: Theft.allCases)
    func `taking the stream away while the loop sleeps ends the hand-off`(theft: Theft) throws {
        let pipe = try TestPipe()
        let stream = InputStream(descriptor: pipe.readEnd)
        let other = try RunLoopThread(name: "other")
        let thief = EventCounter(DispatchSemaphore(value: 0))
        let carried = Carrier((stream, thief))
        let report = collect(stream) { [loop = RunLoop.current] _ in
            _ = try? JoinableThread(name: "thief") {
                loop.untilAsleep()
                let (stream, thief) = carried.value
                theft.take(stream, from: loop, to: other.runLoop, thief)
            }
        }
        other.stop()
        #expect(report?.ending.name == "failed: \(Errno.badFileDescriptor)")
    }

    @Test func `a stream of a hand-off cannot be scheduled on another loop`() throws {
        let source = try HandedStream(.pipe, fails: false)
        let other = try RunLoopThread(name: "other")
        let report = collect(source.stream) { _ in
            source.stream.schedule(in: other.runLoop, forMode: .default)
            other.runLoop.performAndWait {}
            source.finish()
        }
        other.stop()
        #expect(report?.output == HandedStream.content)
    }

    @Test func `removing a file from the loop does not disturb its hand-off`() throws {
        let source = try HandedStream(.file, fails: false)
        let report = collect(source.stream) { _ in
            source.stream.remove(from: .current, forMode: .default)
            source.stream.delegate = nil
        }
        #expect(report?.ending.name == "finished")
        #expect(report?.output == HandedStream.content)
    }

    @Test(arguments: HandedKind.allCases)
    func `releasing a suspended hand-off cancels it`(kind: HandedKind) throws {
        let source = try HandedStream(kind, fails: false)
        var reports: [Report] = []
        do {
            let handoff = ChunkHandoff(source.stream, to: Collector(), on: DispatchQueue(label: "gone"))
            handoff.suspend()
            handoff.start { reports.append($0) }
            RunLoop.current.poll()
            withExtendedLifetime(handoff) {}
        }
        #expect(runToTheEnd())
        #expect(reports.map(\.ending.name) == ["cancelled"])
    }

    @Test func `a hand-off cancelled in the last chunk before the worker yields does not wait for the queue`()
        async throws
    {
        try await onItsOwnThread {
            let queue = DispatchQueue(label: "held")
            let handle = Shared<ChunkHandoff<Collector>?>(nil)
            let ready = DispatchSemaphore(value: 0)
            let collector = Collector(before: { taken in
                if taken == 0 { ready.wait() }
                guard taken == 63 else { return }  // a worker makes way for others after 64 chunks
                queue.suspend()
                handle.value?.cancel()
            })
            let report = collect(
                InputStream(path: "/dev/zero"), collector, on: queue,
                limits: HandoffLimits(chunkSize: 1, bytesInFlight: 100)
            ) {
                handle.value = $0
                ready.signal()
            }
            handle.value = nil
            queue.resume()
            #expect(report?.ending.name == "cancelled")
            #expect(report?.byteCount == 64)
        }
    }
}

/// How other code takes a stream from its hand-off.
enum Theft: String, CaseIterable, Sendable {
    case loop, queue, noDelegate, delegate

    func take(
        _ stream: InputStream, from loop: RunLoop, to other: RunLoop, _ delegate: any StreamDelegate
    ) {
        switch self {
        case .loop:
            stream.remove(from: loop, forMode: .default)
            stream.schedule(in: other, forMode: .default)
        case .queue: stream.setDispatchQueue(.global())
        case .noDelegate: stream.delegate = nil
        case .delegate: stream.delegate = delegate
        }
    }
}

/// Counts the events that it receives.
private final class EventCounter: StreamDelegate {
    let events = Shared(0)
    private let opened: DispatchSemaphore

    init(_ opened: DispatchSemaphore) { self.opened = opened }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.update { $0 += 1 }
        if eventCode == .openCompleted { opened.signal() }
    }
}
