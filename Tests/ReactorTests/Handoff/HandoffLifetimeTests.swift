import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

private final class Token: Sendable {}

@Suite(.runLoop) struct HandoffLifetimeTests {
    @Test func `the completion is called in the requested modes only`() async throws {
        let file = try TemporaryFile(sample(1000))
        try await onItsOwnThread {
            let asked = RunLoop.Mode("asked")
            var modes: [RunLoop.Mode?] = []
            let done = DispatchSemaphore(value: 0)
            let handoff = ChunkHandoff(
                InputStream(path: file.path), to: Collector(atFinish: { done.signal() }),
                on: DispatchQueue(label: "modes"))
            handoff.start(inModes: [asked]) { _ in modes.append(RunLoop.current.currentMode) }
            done.wait()  // the file is read although no loop runs
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(modes.isEmpty)
            #expect(runToTheEnd(in: asked))
            #expect(modes == [asked])
        }
    }

    @Test func `a completion may start the next hand-off, and run the loop`() async throws {
        let file = try TemporaryFile(sample(1000))
        try await onItsOwnThread {
            let queue = DispatchQueue(label: "next")
            var counts: [Int] = []
            func next(_ left: Int) {
                ChunkHandoff(InputStream(path: file.path), to: Collector(), on: queue).start { report in
                    counts.append(report.byteCount)
                    if left > 0 { next(left - 1) }
                    #expect(runToTheEnd())
                }
            }
            next(3)
            #expect(runToTheEnd())
            #expect(counts == [1000, 1000, 1000, 1000])
        }
    }

    @Test func `a progress closure may run the loop, and more is read inside`() throws {
        let pipe = try FileDescriptor.pipe()
        try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll(sample(5000)) }
        let last = Shared(false)
        let collector = Collector(atFinish: { last.value = true })
        var report: HandoffReport<[UInt8]>?
        let home = RunLoop.current
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: true), to: collector,
            on: DispatchQueue(label: "nested"), limits: HandoffLimits(chunkSize: 10, bytesInFlight: 10))
        handoff.start(progress: { _ in
            while !last.value {
                home.run(in: .default, until: .now.advanced(by: .milliseconds(1)))
            }
            #expect(report == nil)
        }) { report = $0 }
        #expect(runToTheEnd())
        #expect(report?.byteCount == 5000)
    }

    @Test func `a completed hand-off leaves nothing behind`() async throws {
        let file = try TemporaryFile(sample(100_000))
        try await onItsOwnThread {
            weak var processor: Token?
            weak var completion: Token?
            weak var stream: InputStream?
            let handoff: ChunkHandoff<Collector>
            do {
                let (inProcessor, inCompletion) = (Token(), Token())
                let input = InputStream(path: file.path)
                (processor, completion, stream) = (inProcessor, inCompletion, input)
                let collector = Collector(before: { _ in _ = inProcessor })
                handoff = ChunkHandoff(input, to: collector, on: DispatchQueue(label: "leaks"))
                handoff.start(progress: { _ in _ = inCompletion }) { _ in _ = inCompletion }
            }
            #expect(runToTheEnd())
            #expect(processor == nil)
            #expect(completion == nil)
            #expect(stream == nil)
            #expect(handoff.progress.byteCount == 100_000)
        }
    }

    @Test func `a hand-off that is never started leaves nothing behind`() {
        weak var processor: Token?
        weak var stream: InputStream?
        do {
            let inProcessor = Token()
            let input = InputStream(path: "/dev/zero")
            (processor, stream) = (inProcessor, input)
            let collector = Collector(before: { _ in _ = inProcessor })
            _ = ChunkHandoff(input, to: collector, on: DispatchQueue(label: "unused"))
        }
        #expect(processor == nil)
        #expect(stream == nil)
    }

    @Test func `a hand-off runs until it completes after its release`() async throws {
        let report = try await onItsOwnThread { () -> Int in
            var count = 0
            let pair = Stream.boundPair(bufferSize: 100)
            pair.output.open()
            ChunkHandoff(pair.input, to: Collector(), on: DispatchQueue(label: "alone")).start {
                count = $0.byteCount
            }
            RunLoop.current.perform(after: .milliseconds(1)) {
                pair.output.write([1, 2, 3])
                pair.output.close()
            }
            #expect(runToTheEnd())
            return count
        }
        #expect(report == 3)
    }

    @Test func `the end of the loop's thread cancels a hand-off and releases everything`() async throws {
        let gone = DispatchSemaphore(value: 0)
        final class Farewell: Sendable {
            let gone: DispatchSemaphore
            init(_ gone: DispatchSemaphore) { self.gone = gone }
            deinit { gone.signal() }
        }
        let thread = try JoinableThread(name: "ending") {
            let (inProcessor, inCompletion) = (Farewell(gone), Farewell(gone))
            let collector = Collector(before: { _ in _ = inProcessor })
            let handoff = ChunkHandoff(
                InputStream(path: "/dev/zero"), to: collector, on: DispatchQueue(label: "ending"),
                limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100))
            handoff.start(progress: { _ in _ = inCompletion }) { _ in
                _ = inCompletion
                Issue.record("completed without a loop")
            }
        }
        thread.join()
        #expect(gone.wait(timeout: .now() + 30) == .success)
        #expect(gone.wait(timeout: .now() + 30) == .success)
    }

    @Test func `starting a hand-off twice traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await onItsOwnThread {
                let handoff = ChunkHandoff(
                    InputStream(data: [1]), to: Collector(), on: DispatchQueue(label: "twice"))
                handoff.start { _ in }
                handoff.start { _ in }
            }
        }
        #expect(result.message.contains("must be called only once"))
    }
}
