import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffCompletionTests {
    private typealias Handoff = ChunkHandoff<Collector>

    @Test(arguments: HandoverCase.all)
    func `a hand-off completes once, whatever happens to its stream and when`(order: HandoverCase)
        async throws
    {
        try await onItsOwnThread {
            let source = try HandedStream(order.kind, fails: order.fails)
            let queue = DispatchQueue(label: "order")
            let handoff = Handoff(source.stream, to: Collector(), on: queue)
            if order.isBefore { Self.prepare(source, handoff, order.fate) }
            var reports: [HandoffReport<[UInt8]>] = []
            queue.suspend()  // no worker comes first
            handoff.start { reports.append($0) }
            if !order.isBefore { Self.disturb(source, handoff, order.fate) }
            queue.resume()
            source.finish()
            if order.fate == .suspended {
                RunLoop.current.poll()
                #expect(reports.isEmpty)
                onThreads(1) { _ in handoff.resume() }
            }
            #expect(runToTheEnd())
            RunLoop.current.poll()
            try #require(reports.count == 1)
            #expect(reports[0].ending.name == Self.ending(order, source.stream))
            #expect(reports[0].byteCount == reports[0].output.count)
            #expect(HandedStream.content.starts(with: reports[0].output))
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

    private static func ending(_ order: HandoverCase, _ stream: InputStream) -> String {
        let closed = "failed: \(Errno.badFileDescriptor)"
        switch order.fate {
        case .endedAndDelivered: return "finished"
        case .endedPending, .suspended: return order.isBefore ? "finished" : closed
        case .failedAndDelivered, .failedPending:
            return stream.streamErrno.map { "failed: \($0)" } ?? "no error"
        case .closed, .closedElsewhere: return closed
        case .cancelled: return "cancelled"
        }
    }

    @Test func `a hand-off fails if no thread can be made`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let report = withoutProcesses { collect(InputStream(data: [1, 2, 3])) }
                try #require(report?.ending.error as? Errno == .resourceTemporarilyUnavailable)
            }
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a stream that timed out and was closed before the delivery fails its hand-off`(
        origin: SocketOrigin
    ) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        var reports: [HandoffReport<[UInt8]>] = []
        let handoff = Handoff(fixture.input, to: Collector(), on: DispatchQueue(label: "idle"))
        handoff.start { reports.append($0) }
        #expect(fixture.input.setProperty(Duration.milliseconds(1), forKey: .socketIdleTimeoutKey))
        waitUntil { fixture.input.streamStatus == .error }
        fixture.closeBoth()
        #expect(runToTheEnd())
        #expect(reports.map(\.ending.name) == ["failed: \(Errno.timedOut)"])
    }
}
