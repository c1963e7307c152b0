import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ByteBudgetTests {
    @Test func `all room is released, however the hand-off ends`() async throws {
        let file = try TemporaryFile(sample(10_000))
        try await onItsOwnThread {
            for (ending, error) in [
                ("finished", nil), ("stopped", StopProcessing()),
                ("failed: \(Errno.outOfRange)", Errno.outOfRange),
            ] as [(String, (any Error)?)] {
                let budget = ByteBudget(limit: 400)
                let collector = Collector(before: { [error] taken in
                    #expect((100...400).contains(budget.inUse))
                    if taken == 500, let error { throw error }
                })
                let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 100, budget: budget)
                let report = collect(InputStream(path: file.path), collector, limits: limits)
                #expect(report?.ending.name == ending)
                #expect(report?.output.count == (error == nil ? 10_000 : 500))
                if error == nil { #expect(budget.inUse == 0) }
                waitUntilUnused(budget)  // a read of the file may have been under way
            }
        }
    }

    @Test func `a stream that cannot be read releases its room`() async throws {
        let budget = ByteBudget(limit: 100)
        let limits = HandoffLimits(chunkSize: 100, budget: budget)
        try await onItsOwnThread {
            #expect(collect(InputStream(path: "/nowhere/at/all"), limits: limits)?.byteCount == 0)
            #expect(collect(InputStream(path: "/"), limits: limits)?.ending.name != "finished")
        }
        #expect(budget.inUse == 0)
    }

    @Test func `waiting chunks release their room when a hand-off is cancelled`() throws {
        let budget = ByteBudget(limit: 1000)
        let pipe = try TestPipe()
        pipe.put(2000)
        let queue = DispatchQueue(label: "still")
        queue.suspend()
        let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 300, budget: budget)
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd), to: Collector(), on: queue, limits: limits)
        var ending: String?
        handoff.start { ending = $0.ending.name }
        for _ in 0..<5 { RunLoop.current.poll() }
        #expect(budget.inUse == 300)
        handoff.cancel()
        #expect(budget.inUse == 0)
        #expect(runToTheEnd())
        #expect(ending == "cancelled")
        queue.resume()
    }

    @Test func `an idle connection takes no room`() throws {
        let budget = ByteBudget(limit: 100)
        let pipe = try TestPipe()
        let taken = DispatchSemaphore(value: 0)
        let queue = DispatchQueue(label: "idle")
        let collector = Collector(before: { _ in
            #expect(budget.inUse == 100)
            taken.signal()
        })
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd), to: collector, on: queue,
            limits: HandoffLimits(chunkSize: 100, budget: budget))
        handoff.start { _ in }
        RunLoop.current.poll()
        #expect(budget.inUse == 0)
        for _ in 0..<3 {
            pipe.put(10)
            RunLoop.current.poll()
            taken.wait()
            queue.sync {}
            #expect(budget.inUse == 0)
        }
        handoff.cancel()
        #expect(runToTheEnd())
    }

    @Test func `a chunk larger than the cap is allowed when there is no other`() async throws {
        let file = try TemporaryFile(sample(10_000))
        let budget = ByteBudget(limit: 1)
        let most = Shared(0)
        let counts = try await onItsOwnThread { () -> [Int] in
            var counts: [Int] = []
            for size in [1000, 700, 300] {
                let collector = Collector(before: { _ in most.update { $0 = max($0, budget.inUse) } })
                let handoff = ChunkHandoff(
                    InputStream(path: file.path), to: collector, on: .global(),
                    limits: HandoffLimits(chunkSize: size, bytesInFlight: 4000, budget: budget))
                handoff.start { counts.append($0.output == sample(10_000) ? size : 0) }
            }
            return runToTheEnd() ? counts : []
        }
        #expect(counts.sorted() == [300, 700, 1000])
        #expect(most.value <= 1000)
        #expect(budget.inUse == 0)
    }

    @Test func `many streams at once stay below the cap, and all are read to the end`() async throws {
        let file = try TemporaryFile(sample(100_000))
        let budget = ByteBudget(limit: 3000)
        let most = Shared(0)
        let whole = try await onItsOwnThread { () -> Int in
            var whole = 0
            var pairs: [(input: InputStream, output: OutputStream)] = []
            for number in 0..<20 {
                let pair = Stream.boundPair(bufferSize: 5000)
                let input = number % 2 == 0 ? InputStream(path: file.path) : pair.input
                let collector = Collector(before: { _ in most.update { $0 = max($0, budget.inUse) } })
                let handoff = ChunkHandoff(
                    input, to: collector, on: .global(),
                    limits: HandoffLimits(chunkSize: 1000, bytesInFlight: 4000, budget: budget))
                handoff.start { whole += $0.output == sample(100_000) ? 1 : 0 }
                if input === pair.input { pairs.append(pair) }
            }
            let writers = pairs.map { pair in
                nonisolated(unsafe) let output = pair.output  // handed over to the thread
                return try? JoinableThread(name: "writer") {
                    output.open()
                    output.write(sample(100_000))
                    output.close()
                }
            }
            #expect(runToTheEnd())
            for writer in writers { writer?.join() }
            return whole
        }
        #expect(whole == 20)
        #expect((1000...3000).contains(most.value))
        #expect(budget.inUse == 0)
    }
}
