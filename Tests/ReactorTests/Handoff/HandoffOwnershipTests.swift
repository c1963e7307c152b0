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
        arguments: handedKinds,
        [Stream.Event.openCompleted, .hasBytesAvailable, .endEncountered])
    func `a stream handed off in its callback is read to the end`(
        kind: StreamKind, event: Stream.Event
    ) throws {
        let (source, recorder) = (try Fixture(kind, isOpenEnded: true), Recorder())
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
        source.input.start(recorder)
        #expect(runToTheEnd() && recorder.events.last == event && report?.ending.name == "finished")
        #expect(report?.output == (event == .endEncountered ? [] : Fixture.content))
    }

    @Test(arguments: handedKinds)
    func `a hand-off removes its stream from its queue and its delegate`(kind: StreamKind) throws {
        let (source, queue, counter) = (
            try Fixture(kind, isOpenEnded: true), DispatchQueue(label: "earlier"), Counter()
        )
        source.input.start(counter, on: queue)
        counter.wait { !$0.isEmpty }
        queue.sync {}
        let before = counter.events.value.count
        let report = collect(source.input) { _ in source.finish() }
        queue.sync {}
        #expect(report?.output == Fixture.content)
        #expect(counter.events.value.count - before <= 1)  // one may have been on its way
    }

    @Test(arguments: handedKinds)
    func `a second hand-off of a stream fails, and takes nothing from the first`(kind: StreamKind) throws {
        let source = try Fixture(kind, isOpenEnded: true)
        var (first, second): (CollectorReport?, CollectorReport?)
        Self.handOver(source.input) { first = $0 }
        Self.handOver(source.input) { second = $0 }
        source.finish()
        #expect(runToTheEnd())
        #expect(first?.output == Fixture.content && first?.ending.name == "finished")
        #expect(second?.byteCount == 0 && second?.ending.errno == .resourceBusy)
        #expect(collect(source.input)?.ending.errno == .badFileDescriptor)
    }

    @Test func `a cancelled hand-off of another one's stream completes`() throws {
        let source = try Fixture(.pipe, isOpenEnded: true)
        var first: CollectorReport?
        Self.handOver(source.input) { first = $0 }
        let second = ChunkHandoff(source.input, to: Collector(), on: DispatchQueue(label: "second"))
        second.cancel()
        var endings: [String] = []
        second.start { endings.append($0.ending.name) }
        source.finish()
        #expect(runToTheEnd() && endings == ["cancelled"] && first?.output == Fixture.content)
    }

    enum Thief: CaseIterable {
        case onLoop, elsewhere, whileAsleep
    }

    @Test(arguments: [StreamKind.bytes, .pipe, .socket], Theft.allCases)
    func `taking the stream away ends the hand-off`(kind: StreamKind, theft: Theft) throws {
        let (other, delegate) = (try RunLoopThread(name: "other"), Counter())
        for thief in Thief.allCases where kind != .bytes || thief != .whileAsleep {
            let source = try Fixture(kind, thief == .whileAsleep ? [] : Fixture.content, isOpenEnded: true)
            let report = collect(source.input, limits: narrow) { [loop] _ in
                let stream = Carrier(source.input)
                let take = Carrier { theft.take(stream.value, from: loop, to: other.runLoop, delegate) }
                switch thief {
                case .onLoop: take.value()
                case .elsewhere: onThreads(1) { _ in take.value() }
                case .whileAsleep:
                    _ = try? JoinableThread(name: "thief") {
                        loop.untilAsleep()
                        take.value()
                    }
                }
            }
            #expect(report?.ending.errno == .badFileDescriptor)
        }
        other.stop()
    }

    @Test func `a stream of a hand-off cannot be scheduled on another loop`() throws {
        let (source, other) = (try Fixture(.pipe, isOpenEnded: true), try RunLoopThread(name: "other"))
        let report = collect(source.input) { _ in
            source.input.schedule(in: other.runLoop, forMode: .default)
            other.runLoop.performAndWait {}
            source.finish()
        }
        other.stop()
        #expect(report?.output == Fixture.content)
    }

    @Test func `removing a file from the loop does not disturb its hand-off`() throws {
        let source = try Fixture(.file)
        let report = collect(source.input) { [loop] _ in
            source.input.remove(from: loop, forMode: .default)
            source.input.delegate = nil
        }
        #expect(report?.ending.name == "finished" && report?.output == Fixture.content)
    }

    @Test(arguments: handedKinds)
    func `releasing a suspended hand-off cancels it`(kind: StreamKind) throws {
        let source = try Fixture(kind, isOpenEnded: true)
        var endings: [String] = []
        do {
            let handoff = ChunkHandoff(source.input, to: Collector(), on: DispatchQueue(label: "gone"))
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
    private typealias Handoff = ChunkHandoff<Collector.Output>

    @Test(arguments: handedKinds, StreamFate.allCases)
    func `a hand-off completes once, whatever happens to its stream`(
        kind: StreamKind, fate: StreamFate
    ) throws {
        if kind == .bytes, fate.isFailure { return }  // Memory cannot fail.
        for isBefore in [true, false] {
            let source = try fate.isFailure ? nil : Fixture(kind, isOpenEnded: true)
            let stream = try source?.input ?? .failing(kind)
            func finish() { source?.finish() }
            let queue = DispatchQueue(label: "order")
            let handoff = Handoff(stream, to: Collector(), on: queue)
            if isBefore { Self.prepare(stream, finish, handoff, fate) }
            var reports: [CollectorReport] = []
            queue.suspend()  // no worker comes first
            handoff.start { reports.append($0) }
            if !isBefore { Self.disturb(stream, finish, handoff, fate) }
            queue.resume()
            finish()
            if fate == .suspended {
                RunLoop.current.settle()
                #expect(reports.isEmpty)
                onThreads(1) { _ in handoff.resume() }
            }
            #expect(runToTheEnd())
            RunLoop.current.settle()
            try #require(reports.count == 1)
            Self.check(reports[0].ending, fate, isBefore, stream)
            #expect(reports[0].byteCount == reports[0].output.count)
            #expect(Fixture.content.starts(with: reports[0].output))
            if isBefore, fate == .cancelled { #expect(reports[0].byteCount == 0) }
        }
    }

    private static func prepare(
        _ stream: InputStream, _ finish: () -> Void, _ handoff: Handoff, _ fate: StreamFate
    ) {
        switch fate {
        case .endedAndDelivered:
            finish()
            stream.deliver(until: .endEncountered)
        case .failedAndDelivered: stream.deliver(until: .errorOccurred)
        case .endedPending, .failedPending:
            finish()
            stream.drain()
        case .closed, .closedElsewhere:
            stream.open()
            if fate == .closed { stream.close() } else { stream.closeElsewhere() }
        case .cancelled: handoff.cancel()
        case .suspended: handoff.suspend()
        }
    }

    /// The stream is closed, so a pending event is not delivered any more.
    private static func disturb(
        _ stream: InputStream, _ finish: () -> Void, _ handoff: Handoff, _ fate: StreamFate
    ) {
        switch fate {
        case .endedAndDelivered, .failedAndDelivered: break
        case .endedPending, .failedPending:
            finish()
            stream.drain()
            stream.close()
        case .closed: stream.close()
        case .closedElsewhere: stream.closeElsewhere()
        case .cancelled: onThreads(1) { _ in handoff.cancel() }
        case .suspended:
            handoff.suspend()
            stream.close()
        }
    }

    private static func check(
        _ ending: HandoffEnding, _ fate: StreamFate, _ isBefore: Bool, _ stream: InputStream
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

    @Test func `a stream that timed out and was closed fails its hand-off`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        var endings: [Errno?] = []
        let handoff = Handoff(fixture.input, to: Collector(), on: DispatchQueue(label: "idle"))
        handoff.start { endings.append($0.ending.errno) }
        fixture.connection.idleTimeout = .milliseconds(1)
        waitUntil { fixture.input.streamStatus == .error }
        fixture.closeBoth()
        #expect(runToTheEnd() && endings == [.timedOut])
    }
}
