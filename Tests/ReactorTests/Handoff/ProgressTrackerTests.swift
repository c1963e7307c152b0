#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

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
