import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffCapTests {
    /// The number of bytes in a pipe.
    private func waiting(in pipe: FileDescriptor) -> Int {
        var count: CInt = 0
        _ = ioctl(pipe.rawValue, UInt(FIONREAD), &count)
        return Int(count)
    }

    @Test(arguments: [1, 2, 4])
    func `at the limit the stream is not read`(chunks: Int) async throws {
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            try pipe.writeEnd.writeAll(sample(10_000))
            let gate = DispatchSemaphore(value: 0)
            let entered = DispatchSemaphore(value: 0)
            let collector = Collector(before: { taken in
                guard taken == 0 else { return }
                entered.signal()
                gate.wait()
            })
            var report: HandoffReport<[UInt8]>?
            let handoff = ChunkHandoff(
                InputStream(descriptor: pipe.readEnd, closeWhenDone: true), to: collector,
                on: DispatchQueue(label: "cap"),
                limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100 * chunks))
            handoff.start { report = $0 }
            // The worker is blocked; the loop runs until it sleeps.
            var sleeps = 0
            let observer = RunLoop.Observer(for: .beforeWaiting) { _, _ in
                if waiting(in: pipe.readEnd) == 10_000 - 100 * chunks { sleeps += 1 }
                if sleeps > 2 { RunLoop.current.stop() } else if sleeps > 0 { RunLoop.current.wakeUp() }
            }
            RunLoop.current.add(observer, forMode: .default)
            #expect(
                RunLoop.current.run(in: .default, until: .now.advanced(by: .seconds(900))) == .stopped)
            observer.invalidate()
            entered.wait()
            #expect(waiting(in: pipe.readEnd) == 10_000 - 100 * chunks)
            gate.signal()
            try pipe.writeEnd.close()
            #expect(runToTheEnd())
            #expect(report?.output == sample(10_000))
        }
    }

    @Test(arguments: [(true, 1), (false, 3)])
    func `the memory of chunks is reused`(isFile: Bool, chunks: Int) async throws {
        let file = try TemporaryFile(sample(300_000))
        let addresses = Shared(Set<UInt>())
        let report = try await onItsOwnThread { () -> HandoffReport<Int>? in
            let pipe = try FileDescriptor.pipe()
            let writer = try JoinableThread {
                _ = try? pipe.writeEnd.closeAfter {
                    if !isFile { try pipe.writeEnd.writeAll(sample(300_000)) }
                }
            }
            var report: HandoffReport<Int>?
            let stream =
                isFile
                ? InputStream(path: file.path) : InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            ChunkHandoff(
                stream, to: AddressCollector(addresses: addresses), on: DispatchQueue(label: "addresses"),
                limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 3000)
            ).start { report = $0 }
            #expect(runToTheEnd())
            if isFile { try pipe.readEnd.close() }
            writer.join()
            return report
        }
        #expect(report?.output == 300_000)
        #expect(addresses.value.count <= chunks)
    }

    @Test func `at the limit a file is not read`() async throws {
        let file = try TemporaryFile(sample(10_000))
        try await onItsOwnThread {
            let descriptor = try FileDescriptor.open(file.path, .readOnly)
            nonisolated(unsafe) let stream = InputStream(descriptor: descriptor, closeWhenDone: true)
            let furthest = Shared(0)
            let collector = Collector(before: { taken in
                let offset = stream.property(forKey: .fileCurrentOffsetKey) as? Int ?? .max
                furthest.update { $0 = max($0, offset - taken) }
            })
            let report = collect(
                stream, collector, limits: HandoffLimits(chunkSize: 100, bytesInFlight: 400))
            #expect(report?.byteCount == 10_000)
            #expect((100...400).contains(furthest.value))
        }
    }

    @Test func `progress is reported about a hundred times, and only grows`() async throws {
        let file = try TemporaryFile(sample(2_000_000))
        let words = try await onItsOwnThread { () -> [HandoffProgress] in
            var words: [HandoffProgress] = []
            let home = RunLoop.current
            let handoff = ChunkHandoff(
                InputStream(path: file.path), to: Collector(), on: DispatchQueue(label: "progress"),
                limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 4000))
            handoff.start(progress: { word in
                #expect(home.isCurrent)
                words.append(word)
            }) { report in
                #expect(report.byteCount == 2_000_000)
                #expect(handoff.progress.byteCount == 2_000_000)
                #expect(handoff.progress.expectedByteCount == 2_000_000)
            }
            return runToTheEnd() ? words : []
        }
        #expect((1...101).contains(words.count))
        #expect(words.map(\.byteCount) == Set(words.map(\.byteCount)).sorted())
        #expect(words.allSatisfy { $0.expectedByteCount == 2_000_000 })
    }
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
