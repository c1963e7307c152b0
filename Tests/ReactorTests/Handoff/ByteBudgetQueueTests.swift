import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Hand-offs that wait for the same budget: their order, and what happens to those that leave.
@Suite(.runLoop) struct ByteBudgetQueueTests {
    /// Pipes whose hand-offs share room for one chunk. The first one's processor waits in its first chunk
    /// until the gate opens.
    private final class Scene {
        let budget = ByteBudget(limit: 100)
        let gate = DispatchSemaphore(value: 0)
        let order = Shared([Int]())
        var pipes: [TestPipe] = []
        var handoffs: [ChunkHandoff<Collector>] = []
        var endings: [Int: String] = [:]

        /// Adds pipes whose bytes ask for room one after the other.
        init(_ count: Int, chunkSizes: [Int] = []) throws {
            for number in 0..<count {
                let pipe = try TestPipe()
                let collector = Collector(before: { [gate, order] taken in
                    order.update { $0.append(number) }
                    if number == 0, taken == 0 { gate.wait() }
                })
                let size = number < chunkSizes.count ? chunkSizes[number] : 100
                let handoff = ChunkHandoff(
                    InputStream(descriptor: pipe.readEnd), to: collector, on: DispatchQueue(label: "turn"),
                    limits: HandoffLimits(chunkSize: size, bytesInFlight: 4 * size, budget: budget))
                handoff.start { [unowned self] in endings[number] = $0.ending.name }
                pipes.append(pipe)
                handoffs.append(handoff)
                // The first pipe's bytes fill one chunk, so it does not ask again.
                pipe.put(number == 0 ? size : 150)
                for _ in 0..<3 { RunLoop.current.poll() }
            }
        }

        /// Opens the gate, and runs the loop until `count` chunks have been started.
        func run(untilBegun count: Int) {
            gate.signal()
            let end = Deadline.minutesAway
            while order.value.count < count, .now < end {
                RunLoop.current.run(in: .default, until: .after(milliseconds: 1))
            }
        }

        func cancelAll() {
            gate.signal()
            for handoff in handoffs { handoff.cancel() }
            #expect(runToTheEnd())
            waitUntilUnused(budget)
        }
    }

    @Test func `hand-offs get room in the order of their requests, a chunk at a time`() throws {
        let scene = try Scene(4)
        #expect(scene.order.value == [] || scene.order.value == [0])
        scene.run(untilBegun: 7)
        #expect(scene.order.value == [0, 1, 2, 3, 1, 2, 3])
        scene.cancelAll()
    }

    @Test func `cancelling a queued hand-off completes it at once`() throws {
        let scene = try Scene(3)
        scene.handoffs[1].cancel()
        while scene.endings[1] == nil {
            RunLoop.current.run(in: .default, until: .after(milliseconds: 1))
        }
        #expect(scene.budget.inUse == 100)
        scene.run(untilBegun: 3)
        #expect(scene.order.value == [0, 2, 2])
        scene.cancelAll()
    }

    @Test func `cancelling a large request lets small ones through`() throws {
        let scene = try Scene(3, chunkSizes: [10, 100, 10])
        #expect(scene.budget.inUse == 10)
        scene.handoffs[1].cancel()
        let end = Deadline.minutesAway
        while !scene.order.value.contains(2), .now < end {
            RunLoop.current.run(in: .default, until: .after(milliseconds: 1))
        }
        #expect(scene.order.value.contains(2))
        scene.cancelAll()
    }

    @Test func `suspending a hand-off takes it out of the queue until it resumes`() throws {
        let scene = try Scene(3)
        scene.handoffs[1].suspend()
        scene.run(untilBegun: 3)
        #expect(scene.order.value == [0, 2, 2])
        scene.handoffs[1].resume()
        scene.run(untilBegun: 5)
        #expect(scene.order.value == [0, 2, 2, 1, 1])
        scene.cancelAll()
    }

    @Test func `the end of a loop's thread takes its hand-offs out of the queue`() async throws {
        let budget = ByteBudget(limit: 100)
        let limits = HandoffLimits(chunkSize: 100, budget: budget)
        let gate = DispatchSemaphore(value: 0)
        let begun = DispatchSemaphore(value: 0)
        let file = try TemporaryFile(sample(1000))
        let holder = try JoinableThread(name: "holder") {
            let collector = Collector(before: { _ in
                begun.signal()
                gate.wait()
            })
            ChunkHandoff(InputStream(path: file.path), to: collector, on: .global(), limits: limits)
                .start { _ in Issue.record("completed without a loop") }
            begun.wait()
        }
        holder.join()
        let waiter = try JoinableThread(name: "waiter") {
            ChunkHandoff(InputStream(path: file.path), to: Collector(), on: .global(), limits: limits)
                .start { _ in Issue.record("completed without a loop") }
            ChunkHandoff(InputStream(data: [1]), to: Collector(), on: .global(), limits: limits)
                .start { _ in Issue.record("completed without a loop") }
            for _ in 0..<3 { RunLoop.current.poll() }
        }
        waiter.join()
        #expect(budget.inUse == 100)
        gate.signal()
        waitUntilUnused(budget)
        let report = try await onItsOwnThread { collect(InputStream(path: file.path), limits: limits) }
        #expect(report?.byteCount == 1000)
    }
}
