import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What a client makes of the events of a tree, beside what is on the disk.
@Suite(.runLoop) struct FileWatcherModelTests {
    /// Changes that the watcher reads when all have been made: what is there first, and then steps. A name with a slash at
    /// its end is a folder with a file of its own; `a>b` moves, `a%b` exchanges, `+a` makes, `-a` removes, and `!a` is watched
    /// on its own or again. The folder "in" is watched, and "out" is not.
    static let sequences: [String] = {
        let ofTwo = [
            "a%b a>c", "a%b b>c", "a%b a%b b>c", "a%b a%b", "a%b b>c a>b c>a", "a%b -b/in.a. -b",
            "a>c c>a a>c",
            "a>c c>a a%b a>c",
        ]
        let mixed = ["a/ b/:", "a b:", "a b/:"].flatMap { start in ofTwo.map { "\(start) \($0)" } }
        // Either is first: the kernel reports the halves of an exchange in another order.
        let exchanges = ["a/ ../out/a/:", "a ../out/a:", "a ../out/a/:", "a/ ../out/a:"].flatMap { start in
            ["a%../out/a", "../out/a%a"].map { "\(start) \($0)" }
        }
        return mixed + exchanges + [
            "c/ c/a/ c/a/b/: +n/ c/a>n/a", "c/ c/a/ c/a/b/: +n/ c/a>n/a -c/in.c. -c",
            "a/ b/ b/c/: a%b/c a>b/d",
            "a/: +n/ +n/x/ n>m a>n", "a/ a/a/ a/b/: +c/ c>a/a/c a/b>c", "b/: +c/ +c/d/ c>b/m b>c",
            "b/: +c/ c%b",
            "b/: +c/ b%c", "a/ b/: +n/ a>n/a n%b", "a/ b/: +b/n/ b/n>c a>c/a", "a a/: a>../out/a +a",
            "a/: a>../out/a +a/", "a/ a/b/: a>../out/a +../out/a/1 +../out/a/b/2", "a/: +a/new/ +a/new/1 a>b",
            "a/ a/b/: +c/ a>c", ": +a/ +a/1 a>b +a/ +a/2", "a: a>../out/a ../out/a>b",
            "x/: x>../out/x +../out/x/a ../out/x>x", "a/ a/b/ x/: a>x/a +x/a/b/c x>../out/x", "a/: +a/b ! +c",
            "a/: a>b !b", "r/ r/a/: !r -r/a/in.r.a. -r/a -r/in.r. -r +r/ +r/b/ !r +r/b/1",
        ]
    }()

    @Test(arguments: sequences)
    func `after changes that were made before the watcher reads, a client knows the tree`(sequence: String)
        throws
    {
        let model = try FolderModel()
        let parts = sequence.split(separator: ":", omittingEmptySubsequences: false)
        for name in parts[0].split(separator: " ") { model.make(String(name), isFilled: true) }
        try model.start()
        for step in parts[1].split(separator: " ") { try model.change(String(step)) }
        try model.check()
    }

    /// A tenth of what finds rare orders.
    private static let changeCount = Depth.of(full: 300, quick: 30)

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `after random changes by another thread a client knows the tree`(seed: UInt64) throws {
        let model = try FolderModel()
        try model.start()
        let (tree, existed) = (model.tree, Shared<Set<FilePath>?>(nil))
        let thread = try JoinableThread(name: "changes") {
            var changes = RandomChanges(tree, seed: seed)
            for _ in 0..<Self.changeCount { changes.makeOne() }
            existed.value = changes.existed
        }
        while existed.value == nil { RunLoop.current.run(in: .default, until: .now + .milliseconds(1)) }
        thread.join()
        try model.check(existed: existed.value)
    }

    @Test func `files in folders that were made a moment ago are reported once`() throws {
        let watch = try Watch()
        let tree = watch.tree
        try watch.watch(recursively: true)
        let thread = try JoinableThread(name: "changes") {
            for index in 0..<50 {
                tree.make("\(index)/", "\(index)/sub/")
                for name in 0..<5 { tree.make("\(index)/\(name)", "\(index)/sub/\(name)") }
            }
        }
        watch.run { watch.events.contains(.created(tree("49/sub/4"))) }
        thread.join()
        let events = try watch.take()
        #expect(events.count == tree.all().count)
        #expect(Set(events) == Set(tree.all().map { .created($0) }))
    }
}

/// A tree, and what its events tell.
private final class FolderModel {
    let watch: Watch
    private var replica = Replica()

    init() throws {
        watch = try Watch()
        tree.make("in/", "out/")
    }

    var tree: TemporaryTree { watch.tree }

    private var disk: Set<FilePath> {
        Set(tree.all(in: "in"))
    }

    func make(_ name: String, isFilled: Bool = false) {
        tree.make("in/" + name)
        if isFilled, name.hasSuffix("/") {
            tree.make("in/\(name)in.\(name.replacing("/", with: "."))")
        }
    }

    func start() throws {
        try watch.watch("in", recursively: true)
        #expect(try watch.take() == [])
        replica = Replica(disk)
    }

    func change(_ step: String) throws {
        let names = step.split { ">%+-!".contains($0) }.map(String.init)
        if step.hasPrefix("!") { try watch.watch("in/" + names.joined(), recursively: true) }
        if step.contains(">") { tree.move("in/\(names[0])", "in/\(names[1])") }
        if step.contains("%") { tree.exchange("in/\(names[0])", "in/\(names[1])") }
        if step.hasPrefix("+") { make(names[0]) }
        if step.hasPrefix("-") { tree.remove("in/\(names[0])") }
    }

    /// Checks that the client knows what is on the disk, which is watched.
    func check(existed: Set<FilePath>? = nil) throws {
        for event in try watch.take() {
            replica.take(event)
            if let existed { #expect(existed.isSuperset(of: event.paths), "\(event)") }
        }
        #expect(replica.paths == disk)
        let files = disk.filter { isFolder($0.string) }.map { $0.appending("later") }
        for file in files { mkfifo(file.string, 0o600) }
        let events = try watch.take()
        #expect(events.count == files.count && Set(events) == Set(files.map { .created($0) }))
        for path in watch.watcher.paths { watch.watcher.unwatch(path) }
        watch.finish(paths: 0, folders: 0)
    }
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
        let (one, other) = (randomName(), randomName())
        if access(tree(one).string, F_OK) != 0 {
            tree.make(Bool.random(using: &generator) ? one + "/" : one)
        } else if (one + "/").hasPrefix(other + "/") || (other + "/").hasPrefix(one + "/") {
            for path in tree.all(in: one).reversed() { Glibc.remove(path.string) }
            tree.remove(one)
        } else if access(tree(other).string, F_OK) == 0, Bool.random(using: &generator) {
            tree.exchange(one, other)
        } else {
            // Refused if another folder with files is there.
            tree.move(one, other)
        }
        existed.formUnion(tree.all(in: "in"))
        if Int.random(in: 0..<8, using: &generator) == 0 { sched_yield() }
    }

    /// A name in a folder that exists.
    private mutating func randomName() -> String {
        var folder = Int.random(in: 0..<4, using: &generator) == 0 ? "out" : "in"
        while true {
            let name = folder + "/" + ["a", "b", "c"].randomElement(using: &generator)!
            let mayDescend = Int.random(in: 0..<3, using: &generator) > 0
            guard mayDescend, isFolder(tree(name).string) else { return name }
            folder = name
        }
    }
}
