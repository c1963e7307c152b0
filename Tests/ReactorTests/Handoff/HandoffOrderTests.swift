import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffOrderTests {
    @Test(arguments: [(7, 7), (7, 14), (64, 640), (4096, 1), (1 << 20, 1 << 22)])
    func `a file arrives whole and in order under any limits`(size: Int, inFlight: Int) async throws {
        // A few thousand chunks at most: each is handed off by itself.
        let bytes = sample(min(50_000, size * 1_000))
        let file = try TemporaryFile(bytes)
        let report = try await onItsOwnThread {
            collect(
                InputStream(path: file.path), limits: HandoffLimits(chunkSize: size, bytesInFlight: inFlight))
        }
        #expect(report?.output == bytes)
        #expect(report?.byteCount == bytes.count)
        #expect(report?.ending.name == "finished")
    }

    @Test(arguments: [1, 2, 3, 8])
    func `a pipe arrives whole and in order under any number of chunks`(chunks: Int) async throws {
        let bytes = sample(300_000)
        let report = try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            DispatchQueue.global().async {
                _ = try? pipe.writeEnd.closeAfter { try pipe.writeEnd.writeAll(bytes) }
            }
            return collect(
                InputStream(descriptor: pipe.readEnd, closeWhenDone: true),
                limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 1000 * chunks))
        }
        #expect(report?.output == bytes)
    }

    @Test func `memory arrives whole`() async throws {
        let bytes = sample(100_000)
        let report = try await onItsOwnThread { collect(InputStream(data: bytes)) }
        #expect(report?.output == bytes)
    }

    @Test func `a bound pair arrives whole`() async throws {
        let bytes = sample(100_000)
        let report = try await onItsOwnThread {
            let pair = Stream.boundPair(bufferSize: 1000)
            let writer = HomeWriter(pair.output, bytes)
            pair.output.open()
            defer { withExtendedLifetime(writer) {} }
            return collect(pair.input)
        }
        #expect(report?.output == bytes)
    }

    @Test func `a FIFO arrives whole`() async throws {
        let bytes = sample(100_000)
        let folder = TemporaryFolder()
        let path = folder.fifo()
        let report = try await onItsOwnThread {
            let keeper = try FileDescriptor.open(path, .readWrite)  // or an open FIFO is at its end at once
            let fifo = InputStream(path: path)
            fifo.open()
            DispatchQueue.global().async { _ = try? keeper.closeAfter { try keeper.writeAll(bytes) } }
            return collect(fifo)
        }
        #expect(report?.output == bytes)
    }

    @Test func `an empty stream finishes`() async throws {
        let file = try TemporaryFile([])
        let reports = try await onItsOwnThread {
            [collect(InputStream(data: [])), collect(InputStream(path: file.path)), collect(InputStream())]
        }
        #expect(reports.map { $0?.ending.name } == ["finished", "finished", "finished"])
        #expect(reports.allSatisfy { $0?.byteCount == 0 })
    }

    @Test(arguments: [true, false])
    func `chunks of one stream are processed one at a time`(isConcurrent: Bool) async throws {
        let file = try TemporaryFile(sample(200_000))
        let queue = DispatchQueue(label: "one", attributes: isConcurrent ? .concurrent : [])
        let inside = Shared(0)
        let report = try await onItsOwnThread {
            let collector = Collector(before: { _ in
                #expect(
                    inside.update {
                        $0 += 1
                        return $0
                    } == 1)
                sched_yield()
                inside.update { $0 -= 1 }
            })
            return collect(
                InputStream(path: file.path), collector, on: queue,
                limits: HandoffLimits(chunkSize: 500, bytesInFlight: 5000))
        }
        #expect(report?.byteCount == 200_000)
    }

    @Test func `streams are processed in parallel on a concurrent queue`() async throws {
        let file = try TemporaryFile(sample(10))
        let queue = DispatchQueue(label: "two", attributes: .concurrent)
        let (first, second) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let names = try await onItsOwnThread { () -> [String] in
            var names: [String] = []
            // Each waits inside until the other is inside too.
            for (mine, other) in [(first, second), (second, first)] {
                let collector = Collector(before: { _ in
                    mine.signal()
                    other.wait()
                })
                ChunkHandoff(InputStream(path: file.path), to: collector, on: queue)
                    .start { names.append($0.ending.name) }
            }
            return runToTheEnd() ? names : []
        }
        #expect(names == ["finished", "finished"])
    }

    @Test func `ten hand-offs share one serial queue`() async throws {
        let file = try TemporaryFile(sample(30_000))
        let queue = DispatchQueue(label: "shared")
        let counts = try await onItsOwnThread { () -> [Int] in
            var counts: [Int] = []
            for _ in 0..<10 {
                ChunkHandoff(
                    InputStream(path: file.path), to: Collector(), on: queue,
                    limits: HandoffLimits(chunkSize: 300, bytesInFlight: 900)
                ).start { counts.append($0.output.count) }
            }
            return runToTheEnd() ? counts : []
        }
        #expect(counts == Array(repeating: 30_000, count: 10))
    }

    @Test func `a subclass is read by its own methods`() async throws {
        let report = try await onItsOwnThread { collect(CountdownInput()) }
        #expect(report?.output == [5, 4, 3, 2, 1])
        #expect(report?.ending.name == "finished")
    }
}

/// Writes bytes to a bound pair's output on the loop.
private final class HomeWriter: StreamDelegate {
    var rest: [UInt8]

    init(_ output: OutputStream, _ bytes: [UInt8]) {
        rest = bytes
        output.delegate = self
        output.schedule(in: .current, forMode: .default)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        guard eventCode == .hasSpaceAvailable, let output = aStream as? OutputStream else { return }
        rest.removeFirst(rest.withUnsafeBufferPointer { output.write($0.baseAddress!, maxLength: $0.count) })
        if rest.isEmpty { output.close() }
    }
}

/// Five bytes, one for each event, and an end that only a read finds.
private final class CountdownInput: InputStream {
    private var next: UInt8 = 5
    private weak var listener: (any StreamDelegate)?

    override init() { super.init() }

    override var delegate: (any StreamDelegate)? {
        get { listener }
        set { listener = newValue }
    }
    override var streamStatus: Stream.Status { .open }
    override func open() {}
    override func close() {}
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        aRunLoop.perform(after: .zero, inModes: [mode]) { [self] in
            listener?.stream(self, handle: .hasBytesAvailable)
            if listener != nil { schedule(in: aRunLoop, forMode: mode) }
        }
    }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        guard next > 0 else { return 0 }
        buffer[0] = next
        next -= 1
        return 1
    }
}
