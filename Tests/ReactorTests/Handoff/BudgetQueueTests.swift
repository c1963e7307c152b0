#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct BudgetQueueTests {
    /// A queue with a limit of ten. Callbacks record their names.
    private final class Scene {
        private var queue = BudgetQueue(limit: 10)
        private let notes = Shared([String]())

        var inUse: Int { queue.inUse }
        var called: [String] { notes.value }

        func reserve(_ byteCount: Int) -> Bool { queue.reserve(byteCount) }

        func enqueue(_ byteCount: Int, _ name: String) -> BudgetQueue.RequestID {
            queue.enqueue(byteCount, orCall: Callback { [notes] in notes.update { $0.append(name) } })
        }

        func claim(_ request: BudgetQueue.RequestID) -> Int? { queue.claim(request) }

        func cancel(_ request: BudgetQueue.RequestID) { call(queue.cancel(request)) }

        private func call(_ callbacks: [Callback]) { for callback in callbacks { callback() } }

        func release(_ byteCount: Int) { call(queue.release(byteCount)) }
    }

    @Test func `room is reserved as long as there is some`() {
        let scene = Scene()
        #expect(scene.reserve(6))
        #expect(scene.reserve(4))
        #expect(!scene.reserve(1))
        #expect(scene.inUse == 10)
        scene.release(6)
        #expect(!scene.reserve(7))
        #expect(scene.reserve(6))
    }

    @Test func `one request is granted whatever its size, if nothing is in use`() {
        let scene = Scene()
        #expect(scene.reserve(.max))
        #expect(!scene.reserve(1))
        scene.release(.max)
        #expect(scene.reserve(1))
        #expect(!scene.reserve(.max))
    }

    @Test func `requests are granted in order, and a later one does not overtake`() {
        let scene = Scene()
        #expect(scene.reserve(8))
        let large = scene.enqueue(5, "large")
        let small = scene.enqueue(1, "small")
        #expect(!scene.reserve(1))  // there is room, but others wait for it
        scene.release(2)
        #expect(scene.called.isEmpty)
        #expect(scene.claim(large) == nil)
        scene.release(2)
        #expect(scene.called == ["large", "small"])
        #expect(scene.inUse == 10)
        #expect(scene.claim(small) == 1)
        #expect(scene.claim(large) == 5)
        #expect(scene.claim(large) == nil)
    }

    @Test func `cancelling the first request lets the next ones through`() {
        let scene = Scene()
        #expect(scene.reserve(8))
        let large = scene.enqueue(5, "large")
        let small = scene.enqueue(1, "small")
        let last = scene.enqueue(4, "last")
        scene.cancel(large)
        #expect(scene.called == ["small"])
        scene.cancel(last)
        #expect(scene.claim(small) == 1)
        #expect(scene.reserve(1))
    }

    @Test func `cancelling a granted request gives its room to the next`() {
        let scene = Scene()
        #expect(scene.reserve(10))
        let first = scene.enqueue(10, "first")
        let second = scene.enqueue(10, "second")
        scene.release(10)
        scene.cancel(first)
        #expect(scene.called == ["first", "second"])
        scene.cancel(first)
        scene.cancel(second)
        #expect(scene.inUse == 0)
    }
}

#endif
