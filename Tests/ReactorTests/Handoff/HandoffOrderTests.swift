import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffOrderTests {
    private let folder = TemporaryFolder()

    @Test(
        arguments: [StreamKind.file, .fifo, .pipe, .bytes, .socket, .boundInput, .connection, nil],
        [(7, 7), (7, 14), (64, 640), (4096, 1), (1000, 8000), (1 << 20, 1 << 22)])
    func `a stream arrives whole and in order under any limits`(
        kind: StreamKind?, limits: (size: Int, inFlight: Int)
    ) throws {
        // A few hundred chunks at most: each is handed off by itself. A subclass has bytes one by one.
        let bytes = sample(min(kind == nil ? 500 : 200_000, limits.size * 500))
        let fixture = try kind.map { try Fixture($0, bytes) }
        let report = collect(
            fixture?.input ?? ByteByByte(bytes),
            limits: HandoffLimits(chunkSize: limits.size, bytesInFlight: limits.inFlight))
        #expect(report?.output == bytes && report?.byteCount == bytes.count)
        #expect(report?.ending.name == "finished")
        withExtendedLifetime(fixture) {}
    }

    @Test func `an empty stream finishes`() throws {
        for stream in [InputStream(data: []), InputStream(path: try folder.file([])), InputStream()] {
            let report = collect(stream)
            #expect(report?.ending.name == "finished" && report?.byteCount == 0)
        }
    }

    @Test(arguments: [true, false])
    func `chunks of one stream are processed one at a time`(isConcurrent: Bool) throws {
        let queue = DispatchQueue(label: "one", attributes: isConcurrent ? .concurrent : [])
        let inside = Shared(0)
        let collector = Collector(before: { _ in
            inside.update { $0 += 1 }
            sched_yield()
            #expect(inside.value == 1)
            inside.update { $0 -= 1 }
        })
        let report = collect(
            InputStream(path: try folder.file(sample(200_000))), collector, on: queue,
            limits: HandoffLimits(chunkSize: 500, bytesInFlight: 5000))
        #expect(report?.byteCount == 200_000)
    }

    @Test func `streams are processed in parallel on a concurrent queue`() throws {
        let (path, both) = (try folder.file(sample(10)), Countdown(2))
        let queue = DispatchQueue(label: "two", attributes: .concurrent)
        var names: [String] = []
        for _ in 0..<2 {
            // Each waits inside until the other is inside too.
            let collector = Collector(before: { _ in
                both.count()
                both.wait()
            })
            ChunkHandoff(InputStream(path: path), to: collector, on: queue).start {
                names.append($0.ending.name)
            }
        }
        #expect(runToTheEnd() && names == ["finished", "finished"])
    }
}

@Suite(.runLoop) struct HandoffCapTests {
    @Test(arguments: [1, 2, 4])
    func `at the limit the stream is not read, until half of the chunks are free`(chunks: Int) throws {
        let (pipe, loop, processed) = (try FileDescriptor.pipe(), RunLoop.current, Shared(0))
        try pipe.writeEnd.writeAll(sample(10_000))
        var report: CollectorReport?
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: true),
            to: Collector(before: { taken in processed.wait { taken < 100 * $0 ? () : nil } }),
            on: DispatchQueue(label: "cap"),
            limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100 * chunks))
        func allow(_ count: Int) {
            processed.value = count
            repeat { loop.settle() } while handoff.progress.byteCount < 100 * count
            loop.settle()
        }
        func waits(_ chunks: Int) -> Bool { unreadCount(of: pipe.readEnd) == 10_000 - 100 * chunks }
        handoff.start { report = $0 }
        repeat { loop.settle() } while !waits(chunks)
        loop.settle()
        #expect(waits(chunks))
        for count in stride(from: 1, to: (chunks + 1) / 2, by: 1) {
            allow(count)
            #expect(waits(chunks))
        }
        allow((chunks + 1) / 2)
        while waits(chunks), loop.run(in: .default, returnAfterSourceHandled: true) != .stopped {}
        processed.value = Int.max / 100
        try pipe.writeEnd.close()
        #expect(runToTheEnd() && report?.output == sample(10_000))
    }

    /// Records the addresses of chunks.
    private struct AddressCollector: ChunkProcessor {
        var output = 0
        let addresses: Shared<Set<UInt>>

        mutating func process(_ chunk: RawSpan) {
            output += chunk.byteCount
            let address = chunk.withUnsafeBytes { UInt(bitPattern: $0.baseAddress) }
            addresses.update { _ = $0.insert(address) }
        }
    }

    @Test(arguments: [(true, 1), (false, 3)])
    func `the memory of chunks is reused`(isFile: Bool, chunks: Int) throws {
        let fixture = try Fixture(isFile ? .file : .pipe, sample(300_000))
        let addresses = Shared(Set<UInt>())
        var byteCount = 0
        ChunkHandoff(
            fixture.input, to: AddressCollector(addresses: addresses),
            on: DispatchQueue(label: "addresses"), limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 3000)
        ).start { byteCount = $0.output }
        #expect(runToTheEnd() && byteCount == 300_000)
        #expect(addresses.value.count <= chunks)
    }

    @Test func `progress is reported about a hundred times, and only grows`() throws {
        let (file, loop) = (try TemporaryFile(sample(2_000_000)), RunLoop.current)
        var reports: [HandoffProgress] = []
        let handoff = ChunkHandoff(
            InputStream(path: file.path), to: Collector(), on: DispatchQueue(label: "progress"),
            limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 4000))
        handoff.start(
            progress: { progress in
                #expect(loop.isCurrent)
                reports.append(progress)
            }, completion: { #expect($0.byteCount == 2_000_000 && handoff.progress.byteCount == 2_000_000) })
        #expect(runToTheEnd() && (1...101).contains(reports.count))
        #expect(reports.map(\.byteCount) == Set(reports.map(\.byteCount)).sorted())
        #expect(reports.allSatisfy { $0.expectedByteCount == 2_000_000 })
    }

    @Test func `the last progress comes before the completion`() throws {
        let (file, queue) = (try TemporaryFile(sample(1000)), DispatchQueue(label: "last"))
        var calls: [String] = []
        let handoff = ChunkHandoff(InputStream(path: file.path), to: Collector(), on: queue)
        handoff.start(
            progress: { _ in calls.append("progress") }, completion: { _ in calls.append("completion") })
        waitUntil { handoff.progress.byteCount == 1000 }
        queue.sync {}
        #expect(runToTheEnd() && calls == ["progress", "completion"])
    }

    @Test(arguments: [Int.min, 0, 1 << 31, 1 << 40, .max], [true, false])
    func `chunks that no read can fill trap`(size: Int, isSetLater: Bool) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [size = size as Int, isSetLater = isSetLater as Bool] in
            var limits = HandoffLimits(chunkSize: isSetLater ? 1 : size)
            limits.chunkSize = size
            let queue = DispatchQueue(label: "chunks")
            ChunkHandoff(InputStream(data: [1]), to: Collector(), on: queue, limits: limits).start { _ in }
        }
        #expect(result.message.contains("HandoffLimits.chunkSize must be positive, and at most"))
    }
}
