import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Files, which the worker reads itself.
@Suite(.runLoop) struct HandoffFileTests {
    private static let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 400)

    @Test func `a file that grows while it is read is read to its new end`() async throws {
        let file = try TemporaryFile(sample(1000))
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let added = Array(sample(1500)[1000...])
            let collector = Collector(before: { taken in
                guard taken == 300 else { return }
                let end = try FileDescriptor.open(file.path, .writeOnly, options: .append)
                try end.closeAfter { _ = try end.writeAll(added) }
            })
            return collect(InputStream(path: file.path), collector, limits: Self.limits)
        }
        #expect(report?.output == sample(1500))
        #expect(report?.byteCount == 1500)
    }

    @Test func `a file that shrinks while it is read ends at its new end`() async throws {
        let file = try TemporaryFile(sample(1000))
        let report = try await onItsOwnThread {
            collect(
                InputStream(path: file.path),
                Collector(before: { if $0 == 300 { truncate(file.path.string, 450) } }), limits: Self.limits)
        }
        #expect(report?.ending.name == "finished")
        #expect(report?.output == Array(sample(1000)[..<450]))
    }

    /// A mapping of two pages of a one-page file: `/proc/self/mem` has the bytes of the first, and fails at
    /// the second.
    @Test func `bytes of a file before an error are processed before it`() async throws {
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        let file = try TemporaryFile(sample(page))
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        defer { try? descriptor.close() }
        let mapping = try #require(mmap(nil, 2 * page, PROT_READ, MAP_SHARED, descriptor.rawValue, 0))
        defer { munmap(mapping, 2 * page) }
        let address = Int(bitPattern: mapping)
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let memory = InputStream(path: "/proc/self/mem")
            #expect(memory.setProperty(address, forKey: .fileCurrentOffsetKey))
            return collect(memory, limits: HandoffLimits(chunkSize: page - 1))
        }
        let error = try #require(report?.ending.error as? IOError)
        #expect(error == IOError(.read, "/proc/self/mem", .ioError))
        #expect(report?.output == sample(page))
    }

    @Test func `a file of proc, which has no size, is read to its end`() async throws {
        let report = try await onItsOwnThread {
            collect(InputStream(path: "/proc/self/status"), limits: Self.limits)
        }
        #expect(report?.ending.name == "finished")
        #expect((report?.byteCount ?? 0) > 100)
    }

    @Test(arguments: [true, false])
    func `a stream that has been read in part is handed off from there`(isSought: Bool) async throws {
        let file = try TemporaryFile(sample(1000))
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let stream = InputStream(path: file.path)
            stream.open()
            if isSought {
                #expect(stream.setProperty(300, forKey: .fileCurrentOffsetKey))
            } else {
                #expect(stream.read(upTo: 300) == Array(sample(300)))
            }
            return collect(stream, limits: Self.limits)
        }
        #expect(report?.output == Array(sample(1000)[300...]))
    }

    @Test func `the descriptor's offset is left where the last chunk ended`() async throws {
        let file = try TemporaryFile(sample(1000))
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        defer { try? descriptor.close() }
        try await onItsOwnThread {
            let stop = Collector(before: { if $0 == 300 { throw StopProcessing() } })
            #expect(collect(InputStream(descriptor: descriptor), stop, limits: Self.limits)?.byteCount == 300)
            let place = try descriptor.seek(offset: 0, from: .current)
            #expect(place == 400)  // the chunk it stopped in was read
            #expect(collect(InputStream(descriptor: descriptor), limits: Self.limits)?.byteCount == 600)
            let end = try descriptor.seek(offset: 0, from: .current)
            #expect(end == 1000)
        }
    }

    @Test func `closing a file that waits for room ends its hand-off`() async throws {
        let file = try TemporaryFile(sample(1000))
        try await onItsOwnThread {
            let budget = ByteBudget(limit: 100)
            let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 100, budget: budget)
            let queue = DispatchQueue(label: "stands")
            queue.suspend()
            defer { queue.resume() }
            var endings: [String] = []
            let first = ChunkHandoff(InputStream(data: [1]), to: Collector(), on: queue, limits: limits)
            first.start { _ in endings.append("first") }
            RunLoop.current.serve { budget.inUse == 100 }
            let (stream, asked) = (InputStream(path: file.path), DispatchQueue(label: "asked"))
            let second = ChunkHandoff(stream, to: Collector(), on: asked, limits: limits)
            second.start { endings.append($0.ending.name) }
            asked.sync {}  // the worker has asked the budget
            let closed = Carrier(stream)
            onThreads(1) { _ in closed.value.close() }
            RunLoop.current.serve { !endings.isEmpty }
            #expect(endings == ["failed: \(Errno.badFileDescriptor)"])
            first.cancel()
            #expect(runToTheEnd())
        }
    }

    /// Cancelled at many moments, because a chunk is read and not yet processed only briefly.
    @Test func `cancelling leaves the descriptor's offset behind the last processed chunk`() async throws {
        let file = try TemporaryFile(sample(20_000))
        try await onItsOwnThread {
            for count in 1...200 {
                let descriptor = try FileDescriptor.open(file.path, .readOnly)
                try descriptor.closeAfter {
                    let report = collect(
                        InputStream(descriptor: descriptor), limits: HandoffLimits(chunkSize: 1)
                    ) { handoff in
                        while handoff.progress.byteCount < count { sched_yield() }
                        handoff.cancel()
                    }
                    let place = try descriptor.seek(offset: 0, from: .current)
                    #expect(Int(place) == report?.byteCount)
                }
            }
        }
    }

    @Test func `a file is read one chunk at a time`() async throws {
        let file = try TemporaryFile(sample(1000))
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            nonisolated(unsafe) let stream = InputStream(descriptor: descriptor, closeWhenDone: true)
            let collector = Collector(before: { taken in
                #expect(stream.property(forKey: .fileCurrentOffsetKey) as? Int == taken + 100)
            })
            return collect(stream, collector, limits: Self.limits)
        }
        #expect(report?.byteCount == 1000)
    }
}
