import Glibc
import Measuring
import Reactor
import Synchronization

/// Posts blocks from one thread to another thread's loop.
final class Posting: Sendable {
    private let loop: RunLoop
    private let count: Int
    private let begin = (wall: now(), processor: processorTime())
    private let done = Atomic(0)
    private let posted = Atomic<Int64>(0)

    init(to loop: RunLoop, count: Int) {
        self.loop = loop
        self.count = count
    }

    func start() {
        for _ in 0..<count { loop.perform { [self] in run() } }
        posted.store(now(), ordering: .releasing)
    }

    private func run() {
        let number = done.load(ordering: .relaxed) + 1
        done.store(number, ordering: .relaxed)
        guard number == count else { return }
        let (wall, processor) = (now() - begin.wall, processorTime() - begin.processor)
        while posted.load(ordering: .acquiring) == 0 { usleep(100) }
        let producer = posted.load(ordering: .acquiring) - begin.wall
        report([processor, wall, producer].map { fixed(Double($0) / Double(count)) })
    }
}
