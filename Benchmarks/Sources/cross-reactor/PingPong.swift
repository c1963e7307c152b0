import Measuring
import Reactor
import Synchronization

/// Passes a block back and forth between two loops.
final class PingPong: Sendable {
    private let here: RunLoop
    private let there: RunLoop
    private let rounds: Int
    private let begin = (wall: now(), processor: processorTime())
    private let done = Atomic(0)

    init(between here: RunLoop, and there: RunLoop, rounds: Int) {
        self.here = here
        self.there = there
        self.rounds = rounds
    }

    func start() {
        here.perform { [self] in ping() }
    }

    private func ping() {
        let number = done.load(ordering: .relaxed)
        guard number < rounds else { return finish() }
        done.store(number + 1, ordering: .relaxed)
        there.perform { [self] in here.perform { [self] in ping() } }
    }

    private func finish() {
        let (wall, processor) = (now() - begin.wall, processorTime() - begin.processor)
        report([processor, wall].map { fixed(Double($0) / Double(rounds)) })
    }
}
