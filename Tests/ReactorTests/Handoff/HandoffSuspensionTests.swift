import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffSuspensionTests {
    private static let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 300)

    @Test func `cancelling a suspended hand-off completes it at once`() async throws {
        let file = try TemporaryFile(sample(10_000))
        try await onItsOwnThread {
            let pipe = try TestPipe()
            for stream in [
                InputStream(path: file.path), InputStream(data: [1, 2]),
                InputStream(descriptor: pipe.readEnd),
            ] {
                let queue = DispatchQueue(label: "still")
                queue.suspend()
                let report = collect(stream, on: queue) { handoff in
                    handoff.suspend()
                    handoff.cancel()
                    handoff.suspend()  // too late
                }
                #expect(report?.ending.name == "cancelled")
                #expect(report?.byteCount == 0)
                queue.resume()
            }
        }
    }

    @Test func `a hand-off that the processor cancels and suspends completes`() async throws {
        let report = try await onItsOwnThread { () -> HandoffReport<[UInt8]>? in
            let handle = Shared<ChunkHandoff<Collector>?>(nil)
            let ready = DispatchSemaphore(value: 0)
            let collector = Collector(before: { taken in
                if taken == 0 { ready.wait() }
                handle.value?.cancel()
                handle.value?.suspend()
            })
            defer { handle.value = nil }
            return collect(InputStream(path: "/dev/zero"), collector, limits: Self.limits) {
                handle.value = $0
                ready.signal()
            }
        }
        #expect(report?.ending.name == "cancelled")
        #expect(report?.byteCount == 100)
    }

    @Test func `the end of the loop's thread releases a suspended hand-off`() async throws {
        let gone = Countdown(2)
        let thread = try JoinableThread(name: "ending") {
            let (inProcessor, inCompletion) = (AtEnd { gone.count() }, AtEnd { gone.count() })
            let handoff = ChunkHandoff(
                InputStream(path: "/dev/zero"), to: Collector(before: { _ in _ = inProcessor }),
                on: DispatchQueue(label: "ending"))
            handoff.suspend()
            handoff.start { _ in _ = inCompletion }
        }
        thread.join()
        gone.wait()
    }

    @Test func `a hand-off suspended before the start reads nothing until it is resumed`() throws {
        let pipe = try FileDescriptor.pipe()
        try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll(sample(1000)) }
        var report: HandoffReport<[UInt8]>?
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: true), to: Collector(),
            on: DispatchQueue(label: "later"), limits: Self.limits)
        handoff.suspend()
        handoff.suspend()
        handoff.start { report = $0 }
        for _ in 0..<5 { RunLoop.current.poll() }
        var waiting: CInt = 0
        _ = ioctl(pipe.readEnd.rawValue, UInt(FIONREAD), &waiting)
        #expect(waiting == 1000)
        handoff.resume()  // however often it was suspended
        #expect(runToTheEnd())
        #expect(report?.output == sample(1000))
    }

    @Test(arguments: ["file", "pipe"])
    func `a hand-off suspended by the processor stops after the current chunk and loses nothing`(kind: String)
        async throws
    {
        let file = try TemporaryFile(sample(5000))
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll(sample(5000)) }
            let stream =
                kind == "file"
                ? InputStream(path: file.path) : InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            let handle = Shared<ChunkHandoff<Collector>?>(nil)
            let loop = RunLoop.current
            var counts: [Int] = []
            let collector = Collector(before: { taken in
                guard taken % 1000 == 0, let handoff = handle.value else { return }
                handoff.suspend()
                loop.perform { loop.stop() }
            })
            var report: HandoffReport<[UInt8]>?
            let handoff = ChunkHandoff(
                stream, to: collector, on: DispatchQueue(label: "stops"), limits: Self.limits)
            handle.value = handoff
            handoff.start { report = $0 }
            while case _ = RunLoop.current.run(in: .default), report == nil {
                while handoff.progress.byteCount % 1000 != 100 { sched_yield() }
                for _ in 0..<3 { RunLoop.current.poll() }
                counts.append(handoff.progress.byteCount)
                handoff.resume()
            }
            handle.value = nil
            #expect(counts == [100, 1100, 2100, 3100, 4100])
            #expect(report?.output == sample(5000))
        }
    }

    @Test func `the end and an error wait until the hand-off is resumed`() throws {
        for isFault in [false, true] {
            let pipe = try FileDescriptor.pipe()
            var ending: String?
            let stream = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            let handoff = ChunkHandoff(stream, to: Collector(), on: DispatchQueue(label: "end"))
            handoff.start { ending = $0.ending.name }
            for _ in 0..<3 { RunLoop.current.poll() }
            handoff.suspend()
            if isFault { stream.close() }
            try pipe.writeEnd.close()
            for _ in 0..<3 { RunLoop.current.poll() }
            #expect(ending == nil)
            handoff.resume()
            #expect(runToTheEnd())
            #expect(ending == (isFault ? "failed: \(Errno.badFileDescriptor)" : "finished"))
        }
    }

    @Test(arguments: [nil, ByteBudget(limit: 250)])
    func `a hand-off suspended and resumed at any time loses nothing`(budget: ByteBudget?) async throws {
        let file = try TemporaryFile(sample(300_000))
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            let writer = try JoinableThread(name: "writer") {
                _ = try? pipe.writeEnd.closeAfter { try pipe.writeEnd.writeAll(sample(300_000)) }
            }
            let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 300, budget: budget)
            var whole = 0
            let handoffs = [
                InputStream(path: file.path), InputStream(descriptor: pipe.readEnd, closeWhenDone: true),
            ].map { ChunkHandoff($0, to: Collector(), on: .global(), limits: limits) }
            for handoff in handoffs { handoff.start { whole += $0.output == sample(300_000) ? 1 : 0 } }
            let nag = try JoinableThread(name: "nag") {
                for _ in 0..<20_000 {
                    for handoff in handoffs { handoff.suspend() }
                    for handoff in handoffs { handoff.resume() }
                }
            }
            #expect(runToTheEnd())
            #expect(whole == 2)
            nag.join()
            writer.join()
            #expect(budget?.inUse ?? 0 == 0)
        }
    }

    @Test func `a line reader suspended by its closure stops after the chunk's lines`() async throws {
        let file = try TemporaryFile(Array(String(repeating: "line\n", count: 100).utf8))
        try await onItsOwnThread {
            let handle = Shared<LineReader<Int>?>(nil)
            let loop = RunLoop.current
            var report: HandoffReport<LineReader<Int>.Output>?
            let seen = Shared(0)
            let reader = LineReader(
                path: file.path, into: 0, on: DispatchQueue(label: "lines"),
                options: .init(limits: Self.limits)
            ) { count, _, place in
                count += 1
                seen.value = count
                guard place.number == 30 else { return }
                handle.value?.suspend()
                loop.perform { loop.stop() }
            }
            handle.value = reader
            reader.start { report = $0 }
            RunLoop.current.run(in: .default)
            while reader.progress.byteCount < 200 { sched_yield() }
            for _ in 0..<3 { RunLoop.current.poll() }
            #expect(seen.value == 40)
            #expect(report == nil)
            reader.resume()
            #expect(runToTheEnd())
            handle.value = nil
            #expect(report?.output.value == 100)
        }
    }
}
