import CReactorTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// What a client makes of a tree's events, beside what is on the disk.
@Suite(.runLoop) struct FileWatcherModelTests {
    @Test(arguments: 0..<4)
    func `after random changes by another thread a client knows the tree`(seed: UInt64) throws {
        let watch = try Watch()
        let tree = watch.tree
        for folder in ["in", "out"] { tree.makeFolder(folder) }
        try watch.watcher.watch(tree("in"), recursively: true)
        let isDone = Shared(false)
        let existed = Shared<Set<FilePath>>([])
        let thread = try JoinableThread(name: "changes") {
            var changes = RandomChanges(tree, seed: seed)
            for _ in 0..<60 { changes.makeOne() }
            existed.value = changes.existed
            isDone.value = true
            RunLoop.main.wakeUp()
        }
        while !isDone.value { RunLoop.current.run(in: .default, until: .now + .milliseconds(1)) }
        thread.join()
        var replica = Replica()
        let known = existed.value
        for event in try watch.take() {
            replica.take(event)
            for path in event.paths where !known.contains(path) {
                Issue.record("\(event): there was no such path")
            }
        }
        let disk = Set(tree.all.filter { $0.starts(with: tree("in")) && $0 != tree("in") })
        #expect(replica.paths == disk)
        // What is there is watched.
        let folders = disk.filter(\.isFolder)
        for folder in folders { mkfifo(folder.appending("later").string, 0o600) }
        let events = try watch.take()
        #expect(Set(events) == Set(folders.map { .created($0.appending("later")) }))
        #expect(events.count == folders.count)
    }

    @Test func `files in folders that were made a moment ago are reported once`() throws {
        let watch = try Watch()
        let tree = watch.tree
        try watch.watcher.watch(tree.path, recursively: true)
        let thread = try JoinableThread(name: "changes") {
            for index in 0..<50 {
                for folder in ["\(index)", "\(index)/sub"] { tree.makeFolder(folder) }
                for name in 0..<5 {
                    tree.makeFIFO("\(index)/\(name)")
                    tree.makeFIFO("\(index)/sub/\(name)")
                }
            }
        }
        watch.run { watch.events.contains(.created(tree("49/sub/4"))) }
        thread.join()
        var counts: [FilePath: Int] = [:]
        for event in try watch.take() {
            guard case .created(let path) = event else {
                Issue.record("\(event)")
                continue
            }
            counts[path, default: 0] += 1
        }
        #expect(counts.filter { $0.value > 1 } == [:])
        #expect(Set(counts.keys) == Set(tree.all))
    }
}

/// What a client knows of a tree: the paths in it.
struct Replica {
    private(set) var paths: Set<FilePath>

    init(_ paths: [FilePath] = []) { self.paths = Set(paths) }

    mutating func take(_ event: FileWatcher.Event) {
        switch event {
        case .created(let path):
            remove(path)
            paths.insert(path)
        case .removed(let path): remove(path)
        case .moved(let old, let new):
            let moved = below(old)
            paths.subtract(moved)
            if moved.isEmpty { paths.insert(new) } else { remove(new) }
            for path in moved { paths.insert(path.moved(from: old, to: new)) }
        case .overflowed, .vanished, .errorOccurred: Issue.record("\(event)")
        case .modified, .closedAfterWriting, .attributesChanged: break
        }
    }

    private mutating func remove(_ path: FilePath) { paths.subtract(below(path)) }

    private func below(_ path: FilePath) -> Set<FilePath> { paths.filter { $0.starts(with: path) } }
}

extension FileWatcher.Event {
    /// The paths that it names.
    fileprivate var paths: [FilePath] {
        switch self {
        case .created(let path), .removed(let path), .modified(let path), .attributesChanged(let path),
            .closedAfterWriting(let path), .vanished(let path):
            [path]
        case .moved(let old, let new): [old, new]
        case .overflowed, .errorOccurred: []
        }
    }
}

extension FilePath {
    fileprivate func moved(from old: FilePath, to new: FilePath) -> FilePath {
        var path = self
        _ = path.removePrefix(old)
        return path.isEmpty ? new : new.pushing(path)
    }

    fileprivate var isFolder: Bool { (try? stat(followTargetSymlink: false).type) == .directory }
}

extension TemporaryTree {
    /// The paths of all that is in it.
    var all: [FilePath] { all(in: path) }

    private func all(in folder: FilePath) -> [FilePath] {
        entries(of: folder.string).flatMap { name in
            let path = folder.appending(name)
            return [path] + (path.isFolder ? all(in: path) : [])
        }
    }
}

/// Exchanges two files or folders.
func exchange(_ one: FilePath, _ other: FilePath) {
    let result = renameat2(AT_FDCWD, one.string, AT_FDCWD, other.string, UInt32(RENAME_EXCHANGE))
    #expect(result == 0)
}

/// Makes, moves, exchanges and removes files and folders with few names in the folders "in" and "out".
private struct RandomChanges {
    private let tree: TemporaryTree
    private var generator: SeededGenerator
    /// The paths in "in" that there have been.
    private(set) var existed: Set<FilePath> = []

    init(_ tree: TemporaryTree, seed: UInt64) {
        (self.tree, generator) = (tree, SeededGenerator(seed: seed))
    }

    mutating func makeOne() {
        let (one, other) = (randomPath(), randomPath())
        if !one.exists {
            if Bool.random(using: &generator) {
                mkdir(one.string, 0o755)
            } else {
                mkfifo(one.string, 0o600)
            }
        } else if one.starts(with: other) || other.starts(with: one) {
            remove(one)
        } else if other.exists, Bool.random(using: &generator) {
            exchange(one, other)
        } else {
            // Refused if another folder with files is there.
            rename(one.string, other.string)
        }
        existed.formUnion(tree.all.filter { $0.starts(with: tree("in")) })
        if Int.random(in: 0..<8, using: &generator) == 0 { sched_yield() }
    }

    /// A path in a folder that exists.
    private mutating func randomPath() -> FilePath {
        var folder = tree(Int.random(in: 0..<4, using: &generator) == 0 ? "out" : "in")
        while true {
            let path = folder.appending(["a", "b", "c"].randomElement(using: &generator)!)
            guard path.isFolder, Int.random(in: 0..<3, using: &generator) > 0 else { return path }
            folder = path
        }
    }

    private func remove(_ path: FilePath) {
        if path.isFolder { for name in entries(of: path.string) { remove(path.appending(name)) } }
        Glibc.remove(path.string)
    }
}

extension FilePath {
    fileprivate var exists: Bool { (try? stat(followTargetSymlink: false)) != nil }
}
