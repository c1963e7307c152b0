import Glibc
import Measuring
import Reactor
import SystemPackage

/// What happens to a watched tree.
struct Phases {
    private let tree: FolderTree
    private let watcher: FileWatcher
    private let loop = RunLoop.current
    private let firings = Firings()

    init(_ tree: FolderTree) throws {
        self.tree = tree
        watcher = try FileWatcher { _, _ in }
        try loop.add(watcher, forMode: .default)
    }

    func run(isCounted: Bool) -> Never {
        let firings = firings
        if !isCounted { Timer.scheduled(every: .milliseconds(1)) { _ in firings.add() } }
        let costs = [
            cost(until: tree.count) {
                do { try watcher.watch(FilePath("\(tree.base)/in"), recursively: true) } catch {
                    fatalError("\(error)")
                }
            },
            cost(until: 1) { tree.move("in/top", "out/top") },
            cost(until: tree.count) { tree.move("out/top", "in/top") },
            cost(until: 1) { [tree] in
                if isCounted { tree.remove() } else { Task.detached { tree.remove() } }
            },
        ]
        watcher.cancel()
        tree.removeRest()
        report(
            costs.map { fixed(Double($0) / Double(tree.count)) }
                + [firings.busy, firings.late].map { fixed(Double($0) / 1e6, 1) })
    }

    /// The processor time of this thread until the watcher watches `count` folders.
    private func cost(until count: Int, _ change: () -> Void) -> Int64 {
        let start = threadTime()
        change()
        let description = "file watcher: 1 paths, \(count) folders"
        while watcher.description != description { loop.run(in: .default, until: .now + .milliseconds(1)) }
        return threadTime() - start
    }
}

/// The longest time between two firings of a timer, and the longest processor time of this thread in it.
final class Firings {
    private(set) var (late, busy): (Int64, Int64) = (0, 0)
    private var last: (time: Int64, processor: Int64)?

    func add() {
        let this = (time: now(), processor: threadTime())
        let last = last ?? this
        late = max(late, this.time - last.time)
        busy = max(busy, this.processor - last.processor)
        self.last = this
    }
}
