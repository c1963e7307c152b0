import Dispatch
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandoffResultTests {
    private struct Counter: ChunkProcessor {
        var output = 0
        var started: Shared<Bool>?

        mutating func process(_ chunk: RawSpan) throws {
            output += chunk.byteCount
            started?.value = true
        }
    }

    @Test(arguments: [true, false], TaskPlace.allCases)
    func `a task waits for the result of a hand-off`(isFile: Bool, place: TaskPlace) async throws {
        let bytes = pattern(1_000_000)
        let file = try TemporaryFile(bytes)
        let report = try await place.run { _ in
            let feed = try Feed()
            if !isFile { try feed.send(bytes) }
            let input = isFile ? InputStream(path: file.path) : feed.makeStream()
            let report = try await input.handOff(to: Counter(), on: DispatchQueue(label: "count"))
            #expect(input.streamStatus == .closed)
            return report
        }
        guard case .finished = report.ending else {
            Issue.record("\(report.ending)")
            return
        }
        #expect(report.output == bytes.count)
    }

    @Test(arguments: TaskPlace.allCases)
    func `cancelling the task ends the hand-off`(place: TaskPlace) async throws {
        let feed = try Feed("abc")
        try await withRunLoopThread(name: "cancelled") { thread in
            let isStarted = Shared(false)
            let task = place.start(on: thread) {
                let counter = Counter(started: isStarted)
                return try await feed.makeStream().handOff(to: counter, on: DispatchQueue(label: "count"))
            }
            await yieldUntil { isStarted.value }
            task.cancel()
            let report = try await task.value
            guard case .cancelled = report.ending else {
                Issue.record("\(report.ending)")
                return
            }
            await yieldUntil { isBroken(feed.writeEnd) }
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task that is cancelled first hands nothing off`(place: TaskPlace) async throws {
        let feed = try Feed("abc")
        try await withRunLoopThread(name: "cancelled") { thread in
            let task = place.start(on: thread) {
                await yieldUntil { Task.isCancelled }
                return try await feed.makeStream().handOff(to: Counter(), on: DispatchQueue(label: "count"))
            }
            task.cancel()
            guard case .cancelled = try await task.value.ending else {
                Issue.record("not cancelled")
                return
            }
        }
    }

    @Test func `a stream that fails is in the report`() async throws {
        let report = try await InputStream(path: "/nonexistent").handOff(to: Counter(), on: .global())
        guard case .failed(let error as IOError) = report.ending else {
            Issue.record("\(report.ending)")
            return
        }
        #expect(error.errno == .noSuchFileOrDirectory)
    }
}
