import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ByteBudgetTests {
    private let loop = RunLoop.current

    @Test(arguments: [nil, StopProcessing(), Errno.outOfRange] as [(any Error)?])
    func `all room is released, however the hand-off ends`(error: (any Error)?) throws {
        let (file, budget) = (try TemporaryFile(sample(10_000)), ByteBudget(limit: 400))
        let collector = Collector(before: { taken in
            #expect((100...400).contains(budget.inUse))
            if taken == 500, let error { throw error }
        })
        let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 100, budget: budget)
        let report = collect(InputStream(path: file.path), collector, limits: limits)
        #expect(report?.output.count == (error == nil ? 10_000 : 500))
        if error == nil { #expect(budget.inUse == 0) }
        waitUntilUnused(budget)  // another chunk of the file may be being read
    }

    @Test func `a stream that cannot be read releases its room`() {
        let budget = ByteBudget(limit: 100)
        for path in ["/nowhere/at/all", "/"] as [FilePath] {
            let limits = HandoffLimits(chunkSize: 100, budget: budget)
            #expect(collect(InputStream(path: path), limits: limits)?.ending.name == "failed")
            #expect(budget.inUse == 0)
        }
    }

    @Test func `waiting chunks release their room when a hand-off is cancelled`() throws {
        let (budget, pipe, queue) = (ByteBudget(limit: 1000), try TestPipe(), DispatchQueue(label: "still"))
        pipe.put(2000)
        queue.suspend()
        let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 300, budget: budget)
        let report = collect(InputStream(descriptor: pipe.readEnd), on: queue, limits: limits) { handoff in
            loop.settle()
            #expect(budget.inUse == 300)
            handoff.cancel()
            #expect(budget.inUse == 0)
        }
        #expect(report?.ending.name == "cancelled")
        queue.resume()
    }

    @Test func `an idle connection takes no room`() throws {
        let (budget, pipe, queue) = (ByteBudget(limit: 100), try TestPipe(), DispatchQueue(label: "idle"))
        let taken = Shared(0)
        let collector = Collector(before: { _ in
            #expect(budget.inUse == 100)
            taken.update { $0 += 1 }
        })
        let limits = HandoffLimits(chunkSize: 100, budget: budget)
        _ = collect(InputStream(descriptor: pipe.readEnd), collector, on: queue, limits: limits) { handoff in
            loop.settle()
            for count in 1...3 {
                #expect(budget.inUse == 0)
                pipe.put(10)
                loop.settle()
                taken.wait { $0 == count ? () : nil }
                queue.sync {}
            }
            #expect(budget.inUse == 0)
            handoff.cancel()
        }
    }

    @Test func `many streams at once stay below the cap, and all are read to the end`() throws {
        let (file, budget, most) = (try TemporaryFile(sample(50_000)), ByteBudget(limit: 3000), Shared(0))
        let pairs = (0..<10).map { _ in Stream.boundPair(bufferSize: 5000) }
        let writers = pairs.map { _ in Recorder() }
        var whole = 0
        for input in pairs.map(\.input) + (0..<10).map({ _ in InputStream(path: file.path) }) {
            ChunkHandoff(
                input, to: Collector(before: { _ in most.update { $0 = max($0, budget.inUse) } }),
                on: .global(),
                limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 4000, budget: budget)
            ).start { whole += $0.output == sample(50_000) ? 1 : 0 }
        }
        for (pair, writer) in zip(pairs, writers) {
            writer.writes(sample(50_000))
            pair.output.start(writer)
        }
        #expect(runToTheEnd() && whole == 20)
        #expect((1000...3000).contains(most.value) && budget.inUse == 0)
    }
}

/// Hand-offs that wait for the same budget: their order, and what happens to those that leave.
@Suite(.runLoop) struct ByteBudgetQueueTests {
    private let loop = RunLoop.current

    /// Pipes whose hand-offs share room for one chunk. The first one's processor waits in its first chunk
    /// until the gate opens.
    private final class Scene {
        let budget = ByteBudget(limit: 100)
        let gate = Countdown(1)
        let order = Shared([Int]())
        var pipes: [TestPipe] = []
        var handoffs: [ChunkHandoff<Collector.Output>] = []
        var endings: [Int: String] = [:]

        /// Adds pipes whose bytes ask for room one after the other.
        init(_ count: Int) throws {
            for number in 0..<count {
                let pipe = try TestPipe()
                let collector = Collector(before: { [gate, order] taken in
                    order.update { $0.append(number) }
                    if number == 0, taken == 0 { gate.wait() }
                })
                let handoff = ChunkHandoff(
                    InputStream(descriptor: pipe.readEnd), to: collector, on: DispatchQueue(label: "turn"),
                    limits: HandoffLimits(chunkSize: 100, bytesInFlight: 400, budget: budget))
                handoff.start { [unowned self] in endings[number] = $0.ending.name }
                pipes.append(pipe)
                handoffs.append(handoff)
                // The first pipe's bytes fill one chunk, so it does not ask again.
                pipe.put(number == 0 ? 100 : 150)
                RunLoop.current.settle()
            }
        }

        /// Serves the loop until the chunks in `expected` have been started, in this order.
        func run(until expected: [Int]) {
            while order.value.count < expected.count {
                RunLoop.current.run(in: .default, until: .after(milliseconds: 1))
            }
            #expect(order.value.starts(with: expected))
        }

        func cancelAll() {
            gate.count()
            for handoff in handoffs { handoff.cancel() }
            #expect(runToTheEnd())
            waitUntilUnused(budget)
        }
    }

    @Test func `a hand-off that is suspended or cancelled leaves the queue, and a resumed one joins it`()
        throws
    {
        let scene = try Scene(4)
        scene.handoffs[1].suspend()
        scene.handoffs[3].cancel()
        loop.serve { scene.endings[3] == "cancelled" }
        #expect(scene.budget.inUse == 100)
        scene.gate.count()
        scene.run(until: [0, 2, 2])
        scene.handoffs[1].resume()
        scene.run(until: [0, 2, 2, 1, 1])
        scene.cancelAll()
    }

    @Test func `the end of a loop's thread takes its hand-offs out of the queue`() throws {
        let budget = ByteBudget(limit: 100)
        let limits = HandoffLimits(chunkSize: 100, budget: budget)
        let (gate, begun, file) = (Countdown(1), Countdown(1), try TemporaryFile(sample(1000)))
        @Sendable func start(_ stream: InputStream, _ collector: sending Collector) {
            ChunkHandoff(stream, to: collector, on: .global(), limits: limits)
                .start { _ in Issue.record("completed without a loop") }
        }
        try onAThread {
            let collector = Collector(before: { _ in
                begun.count()
                gate.wait()
            })
            start(InputStream(path: file.path), collector)
            begun.wait()
        }
        try onAThread {
            start(InputStream(path: file.path), Collector())
            start(InputStream(data: [1]), Collector())
            RunLoop.current.settle()
        }
        #expect(budget.inUse == 100)
        gate.count()
        waitUntilUnused(budget)
        #expect(collect(InputStream(path: file.path), limits: limits)?.byteCount == 1000)
    }
}
