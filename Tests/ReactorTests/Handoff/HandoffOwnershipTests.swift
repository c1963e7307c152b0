import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// How other code takes a stream from its hand-off.
enum Theft: String, CaseIterable, Sendable {
    case removal, loop, queue, noDelegate, delegate

    func take(_ stream: InputStream, from loop: RunLoop, to other: RunLoop, _ delegate: any StreamDelegate) {
        switch self {
        case .removal: stream.remove(from: loop, forMode: .default)
        case .loop:
            stream.remove(from: loop, forMode: .default)
            stream.schedule(in: other, forMode: .default)
        case .queue: stream.setDispatchQueue(.global())
        case .noDelegate: stream.delegate = nil
        case .delegate: stream.delegate = delegate
        }
    }
}

@Suite(.runLoop) struct HandoffOwnershipTests {
    private let loop = RunLoop.current
    private let narrow = HandoffLimits(chunkSize: 1, bytesInFlight: 1)

    private static func handOver(_ stream: InputStream, _ body: @escaping (CollectorReport) -> Void) {
        ChunkHandoff(stream, to: Collector(), on: DispatchQueue(label: "taking over")).start { body($0) }
    }

    @Test(
        arguments: HandedKind.allCases,
        [Stream.Event.openCompleted, .hasBytesAvailable, .endEncountered])
    func `a stream handed off in its callback is read to the end`(
        kind: HandedKind, event: Stream.Event
    ) throws {
        let (source, recorder) = (try HandedStream(kind), Recorder())
        source.finish()
        var report: CollectorReport?
        recorder.onEvent = { stream, received in
            guard let input = stream as? InputStream else { return }
            if received == event {
                Self.handOver(input) { report = $0 }
            } else if received == .hasBytesAvailable {
                _ = input.read(upTo: 100)
            }
        }
        source.stream.start(recorder)
        #expect(runToTheEnd() && recorder.events.last == event && report?.ending.name == "finished")
        #expect(report?.output == (event == .endEncountered ? [] : HandedStream.content))
    }

    @Test(arguments: HandedKind.allCases)
    func `a hand-off removes its stream from its queue and its delegate`(kind: HandedKind) throws {
        let (source, queue, counter) = (try HandedStream(kind), DispatchQueue(label: "earlier"), Counter())
        source.stream.start(counter, on: queue)
        counter.wait { !$0.isEmpty }
        queue.sync {}
        let before = counter.events.value.count
        let report = collect(source.stream) { _ in source.finish() }
        queue.sync {}
        #expect(report?.output == HandedStream.content)
        #expect(counter.events.value.count - before <= 1)  // one may have been on its way
    }

    @Test(arguments: HandedKind.allCases)
    func `a second hand-off of a stream fails, and takes nothing from the first`(kind: HandedKind) throws {
        let source = try HandedStream(kind)
        var (first, second): (CollectorReport?, CollectorReport?)
        Self.handOver(source.stream) { first = $0 }
        Self.handOver(source.stream) { second = $0 }
        source.finish()
        #expect(runToTheEnd())
        #expect(first?.output == HandedStream.content && first?.ending.name == "finished")
        #expect(second?.byteCount == 0 && second?.ending.errno == .resourceBusy)
        #expect(collect(source.stream)?.ending.errno == .badFileDescriptor)
    }

    /// Keeps nothing, and signals when the hand-off has released it.
    private final class ReleaseSignal: ChunkProcessor {
        private let released: Countdown
        var output: Void {}

        init(_ released: Countdown) { self.released = released }

        deinit { released.count() }

        func process(_ chunk: RawSpan) {}
    }

    /// Repeated, because the processor is released shortly before the hand-off has ended.
    @Test(arguments: 0..<20)
    func `a cancelled hand-off of another one's stream completes`(_: Int) throws {
        let (source, released) = (try HandedStream(.pipe), Countdown(1))
        var first: CollectorReport?
        Self.handOver(source.stream) { first = $0 }
        let second = ChunkHandoff(
            source.stream, to: ReleaseSignal(released), on: DispatchQueue(label: "second"))
        second.cancel()
        released.wait()
        var endings: [String] = []
        second.start { endings.append($0.ending.name) }
        source.finish()
        #expect(runToTheEnd() && endings == ["cancelled"] && first?.output == HandedStream.content)
    }

    @Test(arguments: [HandedKind.memory, .pipe, .socket], Theft.allCases)
    func `taking the stream away ends the hand-off`(kind: HandedKind, theft: Theft) throws {
        let (other, thief) = (try RunLoopThread(name: "other"), Counter())
        for isElsewhere in [true, false] {
            let source = try HandedStream(kind)
            let report = collect(source.stream, limits: narrow) { [loop] _ in
                let stream = Carrier(source.stream)
                if isElsewhere {
                    onThreads(1) { _ in theft.take(stream.value, from: loop, to: other.runLoop, thief) }
                } else {
                    theft.take(source.stream, from: loop, to: other.runLoop, thief)
                }
            }
            #expect(report?.ending.errno == .badFileDescriptor)
        }
        other.stop()
    }

    @Test(arguments: Theft.allCases)
    func `taking the stream away while the loop sleeps ends the hand-off`(theft: Theft) throws {
        let (pipe, other, thief) = (try TestPipe(), try RunLoopThread(name: "other"), Counter())
        let stream = Carrier(InputStream(descriptor: pipe.readEnd))
        let report = collect(stream.value) { [loop] _ in
            _ = try? JoinableThread(name: "thief") {
                loop.untilAsleep()
                theft.take(stream.value, from: loop, to: other.runLoop, thief)
            }
        }
        other.stop()
        #expect(report?.ending.errno == .badFileDescriptor)
    }

    @Test func `a stream of a hand-off cannot be scheduled on another loop`() throws {
        let (source, other) = (try HandedStream(.pipe), try RunLoopThread(name: "other"))
        let report = collect(source.stream) { _ in
            source.stream.schedule(in: other.runLoop, forMode: .default)
            other.runLoop.performAndWait {}
            source.finish()
        }
        other.stop()
        #expect(report?.output == HandedStream.content)
    }

    @Test func `removing a file from the loop does not disturb its hand-off`() throws {
        let source = try HandedStream(.file)
        let report = collect(source.stream) { [loop] _ in
            source.stream.remove(from: loop, forMode: .default)
            source.stream.delegate = nil
        }
        #expect(report?.ending.name == "finished" && report?.output == HandedStream.content)
    }

    @Test(arguments: HandedKind.allCases)
    func `a suspended hand-off has no observer that every pass calls`(kind: HandedKind) throws {
        let source = try HandedStream(kind)
        let report = collect(source.stream) { [loop] handoff in
            handoff.suspend()
            loop.settle()
            #expect(!"\(loop)".contains("observer"))
            source.finish()
            handoff.resume()
        }
        #expect(report?.output == HandedStream.content)
    }

    @Test(arguments: HandedKind.allCases)
    func `releasing a suspended hand-off cancels it`(kind: HandedKind) throws {
        let source = try HandedStream(kind)
        var endings: [String] = []
        do {
            let handoff = ChunkHandoff(source.stream, to: Collector(), on: DispatchQueue(label: "gone"))
            handoff.suspend()
            handoff.start { endings.append($0.ending.name) }
            loop.settle()
            withExtendedLifetime(handoff) {}
        }
        #expect(runToTheEnd() && endings == ["cancelled"])
    }
}

/// What happens to a stream around its hand-off.
enum StreamFate: String, CaseIterable, Sendable {
    case endedAndDelivered, endedPending, failedAndDelivered, failedPending, closed, closedElsewhere,
        cancelled, suspended

    var isFailure: Bool { self == .failedAndDelivered || self == .failedPending }
}

@Suite(.runLoop) struct HandoffCompletionTests {
    private typealias Handoff = ChunkHandoff<Collector>

    @Test(arguments: HandedKind.allCases, StreamFate.allCases)
    func `a hand-off completes once, whatever happens to its stream`(
        kind: HandedKind, fate: StreamFate
    ) throws {
        if kind == .memory, fate.isFailure { return }  // Memory cannot fail.
        for isBefore in [true, false] {
            let source = try HandedStream(kind, fails: fate.isFailure)
            let queue = DispatchQueue(label: "order")
            let handoff = Handoff(source.stream, to: Collector(), on: queue)
            if isBefore { Self.prepare(source, handoff, fate) }
            var reports: [CollectorReport] = []
            queue.suspend()  // no worker comes first
            handoff.start { reports.append($0) }
            if !isBefore { Self.disturb(source, handoff, fate) }
            queue.resume()
            source.finish()
            if fate == .suspended {
                RunLoop.current.settle()
                #expect(reports.isEmpty)
                onThreads(1) { _ in handoff.resume() }
            }
            #expect(runToTheEnd())
            RunLoop.current.settle()
            try #require(reports.count == 1)
            Self.check(reports[0].ending, fate, isBefore, source.stream)
            #expect(reports[0].byteCount == reports[0].output.count)
            #expect(HandedStream.content.starts(with: reports[0].output))
            if isBefore, fate == .cancelled { #expect(reports[0].byteCount == 0) }
        }
    }

    private static func prepare(_ source: HandedStream, _ handoff: Handoff, _ fate: StreamFate) {
        switch fate {
        case .endedAndDelivered:
            source.finish()
            source.deliver(until: .endEncountered)
        case .failedAndDelivered: source.deliver(until: .errorOccurred)
        case .endedPending, .failedPending:
            source.finish()
            source.readAll()
        case .closed, .closedElsewhere:
            source.stream.open()
            if fate == .closed { source.stream.close() } else { source.closeElsewhere() }
        case .cancelled: handoff.cancel()
        case .suspended: handoff.suspend()
        }
    }

    /// The stream is closed, so a pending event is not delivered any more.
    private static func disturb(_ source: HandedStream, _ handoff: Handoff, _ fate: StreamFate) {
        switch fate {
        case .endedAndDelivered, .failedAndDelivered: break
        case .endedPending, .failedPending:
            source.finish()
            source.readAll()
            source.stream.close()
        case .closed: source.stream.close()
        case .closedElsewhere: source.closeElsewhere()
        case .cancelled: onThreads(1) { _ in handoff.cancel() }
        case .suspended:
            handoff.suspend()
            source.stream.close()
        }
    }

    private static func check(
        _ ending: CollectorReport.Ending, _ fate: StreamFate, _ isBefore: Bool, _ stream: InputStream
    ) {
        switch fate {
        case .cancelled: #expect(ending.name == "cancelled")
        case .endedAndDelivered: #expect(ending.name == "finished")
        case .endedPending where isBefore, .suspended where isBefore: #expect(ending.name == "finished")
        case .failedAndDelivered, .failedPending:
            #expect(ending.errno != nil && ending.errno == stream.streamErrno)
        default: #expect(ending.errno == .badFileDescriptor)
        }
    }

    @Test func `a hand-off fails if no thread can be made`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let report = withoutProcesses { collect(InputStream(data: [1, 2, 3])) }
                try #require(report?.ending.errno == .resourceTemporarilyUnavailable)
            }
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a stream that timed out and was closed fails its hand-off`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        var endings: [Errno?] = []
        let handoff = Handoff(fixture.input, to: Collector(), on: DispatchQueue(label: "idle"))
        handoff.start { endings.append($0.ending.errno) }
        #expect(fixture.input.setProperty(Duration.milliseconds(1), forKey: .socketIdleTimeoutKey))
        waitUntil { fixture.input.streamStatus == .error }
        fixture.closeBoth()
        #expect(runToTheEnd() && endings == [.timedOut])
    }
}
