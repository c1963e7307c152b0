#if DEBUG

import ReactorTestSupport
import ReactorTesting
import Testing

@testable import Reactor

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
        for _ in 0..<100_000 {
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
