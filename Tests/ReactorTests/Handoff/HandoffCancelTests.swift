import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

private let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 300)

@Suite(.runLoop) struct HandoffCancelTests {
    enum Suspension: CaseIterable { case none, before, after }

    @Test(arguments: Suspension.allCases)
    func `a hand-off that its processor cancels ends after the chunk, suspended or not`(
        suspension: Suspension
    ) {
        let report = collect(InputStream(path: "/dev/zero"), limits: limits) { taken, handoff in
            guard taken == 300 else { return }
            if suspension == .before { handoff.suspend() }
            handoff.cancel()
            if suspension == .after { handoff.suspend() }
        }
        #expect(report?.ending.name == "cancelled")
        #expect(report?.byteCount == 400 && report?.output.count == 400)
    }

    @Test(arguments: [true, false], [true, false])
    func `an endless or silent stream is cancelled on any thread`(isEndless: Bool, isElsewhere: Bool) throws {
        let pipe = try TestPipe()
        let stream = isEndless ? InputStream(path: "/dev/zero") : InputStream(descriptor: pipe.readEnd)
        let report = collect(stream, limits: limits) { handoff in
            if isElsewhere {
                DispatchQueue.global().async { handoff.cancel() }
            } else {
                RunLoop.current.perform { handoff.cancel() }
            }
        }
        #expect(report?.ending.name == "cancelled" && report?.byteCount == report?.output.count)
    }

    @Test(arguments: [true, false])
    func `cancelling completes at once though queue or hand-off is suspended`(isSuspended: Bool) throws {
        let (file, pipe) = (try TemporaryFile(sample(10_000)), try TestPipe())
        for stream in [
            InputStream(path: file.path), InputStream(data: [1, 2]), InputStream(descriptor: pipe.readEnd),
        ] {
            let queue = DispatchQueue(label: "still")
            queue.suspend()
            let report = collect(stream, on: queue) { handoff in
                if isSuspended { handoff.suspend() }
                handoff.cancel()
                if isSuspended { handoff.suspend() }  // too late
            }
            #expect(report?.ending.name == "cancelled" && report?.byteCount == 0)
            queue.resume()
        }
    }

    @Test func `cancelling after the end changes nothing`() {
        var names: [String] = []
        let handoff = ChunkHandoff(
            InputStream(data: [1, 2]), to: Collector(), on: DispatchQueue(label: "late"))
        handoff.start { names.append($0.ending.name) }
        #expect(runToTheEnd())
        handoff.cancel()
        #expect(runToTheEnd() && names == ["finished"] && handoff.progress.byteCount == 2)
    }

    @Test func `cancelling in the last chunk before the worker yields does not wait for the queue`() {
        let queue = DispatchQueue(label: "held")
        let report = collect(
            InputStream(path: "/dev/zero"), on: queue, limits: HandoffLimits(chunkSize: 1, bytesInFlight: 100)
        ) { taken, handoff in
            guard taken == 63 else { return }  // a worker makes way for others after 64 chunks
            queue.suspend()
            handoff.cancel()
        }
        queue.resume()
        #expect(report?.ending.name == "cancelled" && report?.byteCount == 64)
    }
}

@Suite(.runLoop) struct HandoffFaultTests {
    @Test func `bytes before an error are processed before it`() {
        let report = collect(
            ByteByByte([1, 2, 3], error: Errno.connectionReset),
            limits: HandoffLimits(chunkSize: 1, bytesInFlight: 2))
        #expect(report?.output == [1, 2, 3] && report?.ending.errno == .connectionReset)
    }

    @Test func `an error of the processor ends the hand-off`() throws {
        let file = try TemporaryFile(sample(1000))
        for (collector, error, byteCount) in [
            (Collector(before: { if $0 > 500 { throw Errno.outOfRange } }), .outOfRange, 600),
            (Collector(before: { if $0 > 0 { throw StopProcessing() } }), nil, 100),
            (Collector(atFinish: { throw Errno.outOfRange }), .outOfRange, 1000),
        ] as [(Collector, Errno?, Int)] {
            let report = collect(InputStream(path: file.path), collector, limits: limits)
            #expect(report?.ending.errno == error && report?.byteCount == byteCount)
            #expect(report?.ending.name == (error == nil ? "stopped" : "failed"))
        }
    }

    @Test(arguments: [true, false])
    func `closing the stream while a chunk is processed fails the hand-off`(isFile: Bool) throws {
        let pipe = try TestPipe()
        pipe.put()
        let stream = Carrier(isFile ? InputStream(path: "/dev/zero") : InputStream(descriptor: pipe.readEnd))
        let report = collect(
            stream.value, Collector(before: { _ in stream.value.close() }),
            limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100))
        #expect(report?.ending.errno == .badFileDescriptor && (report?.byteCount ?? 0) > 0)
    }
}

@Suite(.runLoop) struct HandoffSuspensionTests {
    private let loop = RunLoop.current

    @Test func `a hand-off suspended before the start reads nothing until it is resumed`() throws {
        let pipe = try FileDescriptor.pipe()
        try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll(sample(1000)) }
        var report: CollectorReport?
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: true), to: Collector(),
            on: DispatchQueue(label: "later"), limits: limits)
        handoff.suspend()
        handoff.suspend()
        handoff.start { report = $0 }
        loop.settle()
        #expect(unreadCount(of: pipe.readEnd) == 1000)
        handoff.resume()  // however often it was suspended
        #expect(runToTheEnd() && report?.output == sample(1000))
    }

    @Test(arguments: [true, false])
    func `a hand-off that its processor suspends stops after the chunk and loses nothing`(
        isFile: Bool
    ) throws {
        let fixture = try Fixture(isFile ? .file : .pipe, sample(5000))
        let handle = Shared<ChunkHandoff<Collector.Output>?>(nil)
        let collector = Collector(before: { [loop] taken in
            guard taken % 1000 == 0, let handoff = handle.value else { return }
            handoff.suspend()
            loop.perform { loop.stop() }
        })
        var report: CollectorReport?
        let handoff = ChunkHandoff(
            fixture.input, to: collector, on: DispatchQueue(label: "stops"), limits: limits)
        handle.value = handoff
        handoff.start { report = $0 }
        var counts: [Int] = []
        while case _ = loop.run(in: .default), report == nil {
            waitUntil { handoff.progress.byteCount % 1000 == 100 }
            loop.settle()
            counts.append(handoff.progress.byteCount)
            handoff.resume()
        }
        handle.value = nil
        #expect(counts == [100, 1100, 2100, 3100, 4100] && report?.output == sample(5000))
    }

    @Test(arguments: [nil, ByteBudget(limit: 250)])
    func `a hand-off suspended and resumed at any time loses nothing`(budget: ByteBudget?) throws {
        let fixtures = try [StreamKind.file, .pipe].map { try Fixture($0, sample(100_000)) }
        let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 300, budget: budget)
        let handoffs = fixtures.map { ChunkHandoff($0.input, to: Collector(), on: .global(), limits: limits) }
        var whole = 0
        for handoff in handoffs { handoff.start { whole += $0.output == sample(100_000) ? 1 : 0 } }
        let switching = try JoinableThread(name: "switching") {
            for _ in 0..<5000 {
                for handoff in handoffs { handoff.suspend() }
                for handoff in handoffs { handoff.resume() }
            }
        }
        #expect(runToTheEnd() && whole == 2)
        switching.join()
        #expect(budget?.inUse ?? 0 == 0)
    }
}
