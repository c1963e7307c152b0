#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct HandoffFlowTests {
    /// A flow, and a record of the calls that it asks for.
    private final class Scene {
        var flow: HandoffFlow
        let calls = Shared([String]())

        init(chunks: Int, file: FileSource? = nil) {
            flow = HandoffFlow(HandoffLimits(chunkSize: 10, bytesInFlight: 10 * chunks))
            let calls = calls
            flow.connect(
                HandoffFlow.LoopCallbacks(
                    announce: Callback { calls.update { $0.append("announce") } },
                    resumeReading: Callback { calls.update { $0.append("resume") } }))
            if let file { perform { $0.start(file, &$1) } } else { _ = flow.beginReading() }
        }

        @discardableResult
        func perform<Answer: ~Copyable>(
            _ change: (inout HandoffFlow, inout HandoffFlow.Effects) -> Answer
        ) -> Answer {
            var effects = HandoffFlow.Effects()
            let answer = change(&flow, &effects)
            for callback in effects.callbacks { callback() }
            if effects.callsWorker { calls.update { $0.append("worker") } }
            return answer
        }

        /// Queues a chunk of one byte. Returns false if there is none to fill.
        func put(_ byte: UInt8) -> Bool {
            guard var chunk = flow.takeFree() else { return false }
            Self.fill(&chunk, byte)
            perform { $0.put(chunk, nil, &$1) }
            return true
        }

        static func fill(_ chunk: inout Chunk, _ byte: UInt8) {
            _ = chunk.fill(upTo: 10) { memory in
                memory.storeBytes(of: byte, as: UInt8.self)
                return 1
            }
        }

        /// Performs the worker's step, which is replaced by the next one. Returns its name.
        func step(_ next: inout HandoffFlow.Step) -> String {
            switch consume next {
            case .process(let chunk, _):
                next = perform { $0.takeProcessed(chunk, 1, nil, &$1) }
                return "process"
            case .read(var chunk, _):
                Self.fill(&chunk, 1)
                next = perform { $0.takeRead(chunk, nil, &$1) }
                return "read"
            case .finish(let fault):
                next = .idle
                return fault == nil ? "finish" : "fail"
            case .yield:
                next = .idle
                return "yield"
            case .idle:
                next = .idle
                return "idle"
            }
        }

        /// The worker's steps until it is idle.
        func work() -> [String] {
            var next = perform { $0.beginWork(&$1) }
            var names: [String] = []
            repeat { names.append(step(&next)) } while names.last != "idle"
            return names.dropLast()
        }
    }

    private static func file() throws -> FileSource {
        let stream = InputStream(path: "/dev/zero")
        stream.open()
        return try #require(FileSource(stream))
    }

    @Test func `a batch of chunks calls the worker once, and it takes them all`() {
        let scene = Scene(chunks: 3)
        for byte in 0..<3 { #expect(scene.put(UInt8(byte))) }
        #expect(scene.calls.value == ["worker"])
        #expect(scene.work() == ["process", "process", "process"])
    }

    @Test func `the reader resumes when half of the chunks are free`() {
        let scene = Scene(chunks: 4)
        while scene.put(0) {}
        scene.calls.value = []
        var next = scene.perform { $0.beginWork(&$1) }
        #expect(scene.step(&next) == "process")
        #expect(!scene.calls.value.contains("resume"))
        #expect(scene.step(&next) == "process")
        #expect(scene.calls.value.contains("resume"))
    }

    @Test func `a file is read a chunk at a time, and yields after many`() throws {
        let scene = Scene(chunks: 8, file: try Self.file())
        let names = scene.work()
        #expect(names == Array(repeating: ["read", "process"], count: 64).flatMap(\.self) + ["yield"])
    }

    @Test func `cancelling concludes at once unless the processor is being called`() throws {
        let scene = Scene(chunks: 1, file: try Self.file())
        var next = scene.perform { $0.beginWork(&$1) }  // reading
        let isAlone = scene.perform { $0.cancel(&$1) }
        #expect(isAlone)
        #expect(scene.step(&next) == "read")
        #expect(scene.step(&next) == "idle")

        let other = Scene(chunks: 1, file: try Self.file())
        next = other.perform { $0.beginWork(&$1) }
        #expect(other.step(&next) == "read")  // processing
        let isSecondAlone = other.perform { $0.cancel(&$1) }
        #expect(!isSecondAlone)
        #expect(other.step(&next) == "process")
        #expect(other.step(&next) == "finish")
    }

    @Test func `a chunk that is read while suspended waits`() throws {
        let scene = Scene(chunks: 1, file: try Self.file())
        var next = scene.perform { $0.beginWork(&$1) }
        scene.perform { $0.suspend(&$1) }
        #expect(scene.step(&next) == "read")
        #expect(scene.step(&next) == "idle")
        scene.calls.value = []
        scene.perform { $0.resume(&$1) }
        #expect(scene.calls.value == ["worker"])
        #expect(scene.work().first == "process")
    }
}

@Suite(.runLoop) struct BudgetQueueTests {
    /// A queue with a limit of ten. Callbacks record their names.
    private final class Scene {
        private var queue = BudgetQueue(limit: 10)
        let called = Trace()
        var inUse: Int { queue.inUse }

        func reserve(_ byteCount: Int) -> Bool { queue.reserve(byteCount) }

        func claim(_ request: BudgetQueue.RequestID) -> Int? { queue.claim(request) }

        func enqueue(_ byteCount: Int, _ name: String) -> BudgetQueue.RequestID {
            queue.enqueue(byteCount, orCall: Callback { [called] in called(name) })
        }

        func cancel(_ request: BudgetQueue.RequestID) { for callback in queue.cancel(request) { callback() } }

        func release(_ byteCount: Int) { for callback in queue.release(byteCount) { callback() } }
    }

    @Test func `room is reserved as long as there is some, and for one request of any size`() {
        let scene = Scene()
        #expect(scene.reserve(6) && scene.reserve(4) && !scene.reserve(1))
        #expect(scene.inUse == 10)
        scene.release(6)
        #expect(!scene.reserve(7) && scene.reserve(6))
        scene.release(10)
        #expect(scene.reserve(.max) && !scene.reserve(1))
        scene.release(.max)
        #expect(scene.reserve(1) && !scene.reserve(.max))
    }

    @Test func `requests are granted in order, and a later one does not overtake`() {
        let scene = Scene()
        #expect(scene.reserve(8))
        let (large, small) = (scene.enqueue(5, "large"), scene.enqueue(1, "small"))
        #expect(!scene.reserve(1))  // there is room, but others wait for it
        scene.release(2)
        #expect(scene.called.all.isEmpty && scene.claim(large) == nil)
        scene.release(2)
        #expect(scene.called.all == ["large", "small"] && scene.inUse == 10)
        #expect(scene.claim(small) == 1 && scene.claim(large) == 5)
        #expect(scene.claim(large) == nil)
    }

    @Test func `cancelling a request, granted or not, lets the next ones through`() {
        let scene = Scene()
        #expect(scene.reserve(8))
        let (large, small) = (scene.enqueue(5, "large"), scene.enqueue(1, "small"))
        let (first, second) = (scene.enqueue(10, "first"), scene.enqueue(10, "second"))
        scene.cancel(large)
        #expect(scene.called.all == ["small"] && scene.claim(small) == 1)
        scene.release(9)
        #expect(scene.called.all == ["small", "first"])
        scene.cancel(first)
        #expect(scene.called.all == ["small", "first", "second"])
        scene.cancel(first)
        scene.cancel(second)
        #expect(scene.inUse == 0)
    }
}

@Suite(.runLoop) struct ProgressTrackerTests {
    @Test func `a known size is reported a hundred times`() {
        var tracker = ProgressTracker()
        tracker.expect(1_000_000)
        var time: Int64 = 0
        var reports = 0
        for _ in 0..<Depth.of(full: 1_000_000, quick: 100_000) {
            time += 1_000_000_000
            if tracker.add(10, at: { time }) { reports += 1 }
        }
        #expect(reports == 100)
        let (latest, none) = (tracker.takeProgress(), tracker.takeProgress())
        #expect(latest?.expectedByteCount == 1_000_000)
        #expect(none == nil)
    }

    @Test func `an unknown size is reported fifty times a second`() {
        var tracker = ProgressTracker()
        tracker.expect(0)
        let reports = (0..<2000).count { index in tracker.add(1, at: { Int64(index) * 1_000_000 }) }
        #expect(reports == 100)
        #expect(tracker.progress == HandoffProgress(byteCount: 2000, expectedByteCount: nil))
    }

    @Test func `no bytes are not reported, and more than expected make the size unknown`() {
        var tracker = ProgressTracker()
        tracker.expect(10)
        let (first, second) = (tracker.add(0, at: { 0 }), tracker.add(10, at: { 0 }))
        #expect(!first)
        #expect(second)
        #expect(tracker.progress == HandoffProgress(byteCount: 10, expectedByteCount: 10))
        _ = tracker.add(1, at: { 0 })
        #expect(tracker.progress == HandoffProgress(byteCount: 11, expectedByteCount: nil))
    }
}

#endif
