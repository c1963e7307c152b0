#if DEBUG

import SystemPackage
import Testing

@testable import Reactor

/// Visits every sequence of six inputs.
@Suite struct BoundedQueueTests {
    private enum Input: CaseIterable { case put, take, end, fail, cancel, refuse }

    @Test func `elements leave in order, and no input changes how the queue has ended`() {
        var scenes = [Scene()]
        for _ in 0..<6 {
            scenes = scenes.flatMap { scene in
                Input.allCases.map { input in
                    var scene = scene
                    scene.perform(input)
                    return scene
                }
            }
            if let problem = scenes.lazy.compactMap(\.problem).first {
                Issue.record("\(problem)")
                return
            }
        }
        #expect(scenes.count == 46_656)
    }

    @Test func `a queue of bytes has room below its limit, and always for one byte when it is empty`() {
        var bytes = BoundedQueue<ByteQueue, Errno>(limit: 2)
        _ = [1, 2, 3].withBytes { bytes.contents.append($0, limit: bytes.limit) }
        #expect(bytes.contents.count == 2 && !bytes.hasRoom)
        bytes.limit = 0
        #expect(!bytes.hasRoom && bytes.take().count == 2 && bytes.hasRoom)
    }

    /// A queue of two elements, and what it should be.
    private struct Scene {
        private var queue = BoundedQueue<[Int], Errno>(limit: 2)
        private var waiting: [Int] = []
        private var count = 0
        private var firstEnd: Input?
        private var hasCancelled = false
        /// The first violated rule.
        private(set) var problem: String?

        mutating func perform(_ input: Input) {
            switch input {
            case .put:
                guard queue.hasRoom else { break }
                queue.put(count)
                waiting.append(count)
                count += 1
            case .take:
                let expected = waiting.isEmpty ? nil : waiting.removeFirst()
                check(queue.takeFirst() == expected, "an element is lost, or out of order")
            case .end, .fail:
                queue.end(input == .fail ? .ioError : nil)
                if firstEnd == nil { firstEnd = input }
            case .cancel, .refuse:
                check(queue.cancel(input == .refuse ? .noSpace : nil) == waiting, "the rest is not dropped")
                if !hasCancelled { (firstEnd, hasCancelled) = (input, true) }
                waiting = []
            }
            checkState()
        }

        private mutating func checkState() {
            check(queue.isEmpty == waiting.isEmpty, "the queue is not as long as it should be")
            check(queue.hasRoom == (firstEnd == nil && waiting.count < 2), "room is not what is free")
            check(queue.hasResult == (firstEnd != nil || !waiting.isEmpty), "the consumer waits for nothing")
            check(queue.isOpen == (firstEnd == nil) && queue.isCancelled == hasCancelled, "a wrong phase")
            check(queue.producerFailure == (firstEnd == .fail ? .ioError : nil), "a wrong fault")
            check(queue.consumerFailure == (firstEnd == .refuse ? .noSpace : nil), "a wrong refusal")
        }

        private mutating func check(_ holds: Bool, _ rule: String) {
            if !holds, problem == nil { problem = rule }
        }
    }
}

#endif
