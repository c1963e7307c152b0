#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct ConditionTests {
    @Test func `a broadcast between the look and the wait is not missed`() {
        let condition = Condition()
        let generation = condition.generation
        condition.broadcast()
        #expect(condition.wait(after: generation))
    }

    @Test func `a wait without a broadcast ends at its deadline and not before`() {
        for deadline in [Deadline.now + .milliseconds(5), .now, .distantPast] {
            let condition = Condition()
            #expect(!condition.wait(after: condition.generation, until: deadline))
            #expect(Deadline.now >= deadline)
        }
    }

    /// A lost wake-up would stop all three for good.
    @Test func `threads that wait for each other never miss a broadcast`() {
        let (condition, turn, threads) = (Condition(), Shared(0), 3)
        onThreads(threads) { thread in
            for round in 0..<1_000 {
                while true {
                    let generation = condition.generation
                    if turn.value == round * threads + thread { break }
                    condition.wait(after: generation)
                }
                turn.update { $0 += 1 }
                condition.broadcast()
            }
        }
        #expect(turn.value == threads * 1_000)
    }
}

#endif
