import Testing

@testable import Reactor

@Suite struct BudgetLineTests {
    /// A line whose limit is ten. Callbacks note who was called.
    private final class Scene {
        private var line = BudgetLine(limit: 10)
        private let notes = Shared([String]())

        var inUse: Int { line.inUse }
        var called: [String] { notes.value }

        func take(_ byteCount: Int) -> Bool { line.take(byteCount) }

        func enter(_ byteCount: Int, _ name: String) -> BudgetLine.Ticket {
            line.enter(byteCount, orCall: Callback { [notes] in notes.update { $0.append(name) } })
        }

        func redeem(_ ticket: BudgetLine.Ticket) -> Int? { line.redeem(ticket) }

        func leave(_ ticket: BudgetLine.Ticket) { call(line.leave(ticket)) }

        private func call(_ callbacks: [Callback]) { for callback in callbacks { callback() } }

        func giveBack(_ byteCount: Int) { call(line.giveBack(byteCount)) }
    }

    @Test func `room is taken as long as there is some`() {
        let scene = Scene()
        #expect(scene.take(6))
        #expect(scene.take(4))
        #expect(!scene.take(1))
        #expect(scene.inUse == 10)
        scene.giveBack(6)
        #expect(!scene.take(7))
        #expect(scene.take(6))
    }

    @Test func `one request is granted whatever its size, if nothing is in use`() {
        let scene = Scene()
        #expect(scene.take(.max))
        #expect(!scene.take(1))
        scene.giveBack(.max)
        #expect(scene.take(1))
        #expect(!scene.take(.max))
    }

    @Test func `who came first is served first, and a newcomer does not overtake`() {
        let scene = Scene()
        #expect(scene.take(8))
        let large = scene.enter(5, "large")
        let small = scene.enter(1, "small")
        #expect(!scene.take(1))  // there is room, but others wait for it
        scene.giveBack(2)
        #expect(scene.called.isEmpty)
        #expect(scene.redeem(large) == nil)
        scene.giveBack(2)
        #expect(scene.called == ["large", "small"])
        #expect(scene.inUse == 10)
        #expect(scene.redeem(small) == 1)
        #expect(scene.redeem(large) == 5)
        #expect(scene.redeem(large) == nil)
    }

    @Test func `who leaves the head of the line makes way for those behind`() {
        let scene = Scene()
        #expect(scene.take(8))
        let large = scene.enter(5, "large")
        let small = scene.enter(1, "small")
        let last = scene.enter(4, "last")
        scene.leave(large)
        #expect(scene.called == ["small"])
        scene.leave(last)
        #expect(scene.redeem(small) == 1)
        #expect(scene.take(1))
    }

    @Test func `who leaves with room that was not used gives it to the next`() {
        let scene = Scene()
        #expect(scene.take(10))
        let first = scene.enter(10, "first")
        let second = scene.enter(10, "second")
        scene.giveBack(10)
        scene.leave(first)
        #expect(scene.called == ["first", "second"])
        scene.leave(first)
        scene.leave(second)
        #expect(scene.inUse == 0)
    }
}
