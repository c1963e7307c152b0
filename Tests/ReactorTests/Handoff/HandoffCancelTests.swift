import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffCancelTests {
    @Test func `a hand-off cancelled before the start completes without reading`() async throws {
        let file = try TemporaryFile(sample(1000))
        let reports = try await onItsOwnThread { () -> [HandoffReport<[UInt8]>] in
            var reports: [HandoffReport<[UInt8]>] = []
            for stream in [InputStream(path: file.path), InputStream(data: [1])] {
                let handoff = ChunkHandoff(stream, to: Collector(), on: DispatchQueue(label: "early"))
                handoff.cancel()
                handoff.start { reports.append($0) }
                handoff.cancel()
            }
            return runToTheEnd() ? reports : []
        }
        #expect(reports.map(\.ending.name) == ["cancelled", "cancelled"])
        #expect(reports.allSatisfy { $0.byteCount == 0 && $0.output.isEmpty })
    }

    @Test
    func `a hand-off cancelled by the processor ends after the current chunk and reports its byte count`()
        async throws
    {
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let handle = Shared<ChunkHandoff<Collector>?>(nil)
            let ready = DispatchSemaphore(value: 0)
            let collector = Collector(before: { taken in
                if taken == 0 { ready.wait() }
                if taken == 3000 { handle.value?.cancel() }
            })
            return collect(
                InputStream(path: "/dev/zero"), collector,
                limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 4000)
            ) {
                handle.value = $0
                ready.signal()
            }
        }
        #expect(report?.ending.name == "cancelled")
        #expect(report?.byteCount == 4000)
        #expect(report?.output.count == 4000)
    }

    @Test(arguments: ["loop", "elsewhere"])
    func `an endless stream is cancelled from any thread`(place: String) async throws {
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            collect(
                InputStream(path: "/dev/zero"), Collector(),
                limits: HandoffLimits(chunkSize: 10, bytesInFlight: 40)
            ) { handoff in
                if place == "loop" {
                    RunLoop.current.perform { handoff.cancel() }
                } else {
                    DispatchQueue.global().async { handoff.cancel() }
                }
            }
        }
        #expect(report?.ending.name == "cancelled")
        #expect(report?.byteCount == report?.output.count)
    }

    @Test(arguments: [true, false])
    func `a suspended queue does not delay a cancellation`(isBefore: Bool) async throws {
        let queue = DispatchQueue(label: "still")
        queue.suspend()
        let file = try TemporaryFile(sample(1000))
        let report = try await onItsOwnThread {
            collect(InputStream(path: file.path), on: queue) { $0.cancel() }
        }
        queue.resume()
        #expect(report?.ending.name == "cancelled")
        queue.sync {}
    }

    @Test func `cancelling after the end changes nothing`() async throws {
        let count = try await onItsOwnThread { () -> Int in
            var count = 0
            let handoff = ChunkHandoff(
                InputStream(data: [1, 2]), to: Collector(), on: DispatchQueue(label: "late"))
            handoff.start { report in
                #expect(report.ending.name == "finished")
                count += 1
            }
            #expect(runToTheEnd())
            handoff.cancel()
            #expect(runToTheEnd())
            #expect(handoff.progress.byteCount == 2)
            return count
        }
        #expect(count == 1)
    }

    @Test func `a hand-off of an idle pipe can be cancelled`() async throws {
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let pipe = try FileDescriptor.pipe()
            defer { try? pipe.writeEnd.close() }
            return collect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true)) { handoff in
                DispatchQueue.global().async { handoff.cancel() }
            }
        }
        #expect(report?.ending.name == "cancelled")
    }
}

@Suite(.runLoop) struct HandoffFaultTests {
    @Test func `a missing file fails the hand-off`() async throws {
        let report = try await onItsOwnThread { collect(InputStream(path: "/nowhere/at/all")) }
        #expect(report?.ending.name == "failed: \(Errno.noSuchFileOrDirectory)")
    }

    @Test func `bytes before an error are processed before it`() async throws {
        let report = try await onItsOwnThread {
            collect(Broken(), limits: HandoffLimits(chunkSize: 1, bytesInFlight: 2))
        }
        #expect(report?.output == [1, 2, 3])
        #expect(report?.ending.name == "failed: \(Errno.connectionReset)")
    }

    @Test func `an error of the processor ends the hand-off`() async throws {
        let file = try TemporaryFile(sample(1000))
        let reports = try await onItsOwnThread {
            [
                collect(
                    InputStream(path: file.path),
                    Collector(before: { if $0 > 500 { throw Errno.outOfRange } }),
                    limits: HandoffLimits(chunkSize: 100, bytesInFlight: 300)),
                collect(
                    InputStream(path: file.path), Collector(before: { if $0 > 0 { throw StopProcessing() } }),
                    limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100)),
                collect(
                    InputStream(path: file.path), Collector(atFinish: { throw Errno.outOfRange })),
            ]
        }
        let failed = "failed: \(Errno.outOfRange)"
        #expect(reports.map { $0?.ending.name } == [failed, "stopped", failed])
        #expect(reports.map { $0?.byteCount } == [600, 100, 1000])
    }

    @Test(arguments: ["file", "pipe"])
    func `closing the stream fails the hand-off`(kind: String) async throws {
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let pipe = try FileDescriptor.pipe()
            defer { try? pipe.writeEnd.close() }
            nonisolated(unsafe) let stream =  // closing is for any thread
                kind == "file"
                ? InputStream(path: "/dev/zero") : InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            try pipe.writeEnd.writeAll([1])
            return collect(
                stream, Collector(before: { _ in stream.close() }),
                limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100))
        }
        #expect(report?.ending.name == "failed: \(Errno.badFileDescriptor)")
        #expect((report?.byteCount ?? 0) > 0)
    }

    @Test func `a closed stream fails the hand-off`() async throws {
        let file = try TemporaryFile([1])
        let reports = try await onItsOwnThread {
            [InputStream(path: file.path), InputStream(data: [1])].map { stream in
                stream.open()
                stream.close()
                return collect(stream)?.ending.name
            }
        }
        #expect(reports == Array(repeating: "failed: \(Errno.badFileDescriptor)", count: 2))
    }
}

/// Three bytes, then an error.
private final class Broken: InputStream {
    private var next: UInt8 = 1

    override init() { super.init() }

    private weak var listener: (any StreamDelegate)?
    override var delegate: (any StreamDelegate)? {
        get { listener }
        set { listener = newValue }
    }
    override var streamStatus: Stream.Status { next > 3 ? .error : .open }
    override var streamError: (any Error)? { next > 3 ? Errno.connectionReset : nil }
    override func open() {}
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        aRunLoop.perform(after: .zero, inModes: [mode]) { [self] in
            listener?.stream(self, handle: .hasBytesAvailable)
            if listener != nil { schedule(in: aRunLoop, forMode: mode) }
        }
    }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        guard next <= 3 else { return -1 }
        buffer[0] = next
        next += 1
        return 1
    }
}
