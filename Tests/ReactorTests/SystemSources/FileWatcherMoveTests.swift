import CReactorTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Moves whose halves come apart, exchanges, and names that are used again.
@Suite(.runLoop) struct FileWatcherMoveTests {
    @Test(arguments: [true, false])
    func `a move is one event though its halves are read at different times`(isTask: Bool) async throws {
        let tree = TemporaryTree()
        for name in ["a", "b"] { tree.makeFIFO(name) }
        let move = FileWatcher.Event.moved(from: tree("a"), to: tree("c"))
        let last =
            isTask
            ? try await lastEventOfTask(tree) : try await onItsOwnThread { try lastEventOfHandler(tree) }
        #expect(last == move)
    }

    @Test func `what was moved away and made again is there`() throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        tree.makeFIFO("a")
        tree.makeFolder("folder")
        try watch.watcher.watch(tree.path, recursively: true)
        rename(tree("a").string, other("a").string)
        tree.makeFIFO("a")
        rename(tree("folder").string, other("folder").string)
        tree.makeFolder("folder")
        #expect(
            try watch.take() == [
                .removed(tree("a")), .created(tree("a")), .removed(tree("folder")),
                .created(tree("folder")),
            ])
        tree.makeFIFO("folder/file")
        other.makeFIFO("folder/other")
        #expect(try watch.take() == [.created(tree("folder/file"))])
    }

    @Test func `nothing is reported in a folder once it has been moved away`() throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        for folder in ["a", "a/b"] { tree.makeFolder(folder) }
        try watch.watcher.watch(tree.path, recursively: true)
        rename(tree("a").string, other("a").string)
        for name in ["a/1", "a/b/2"] { other.makeFIFO(name) }
        #expect(try watch.take() == [.removed(tree("a"))])
    }

    @Test func `a folder that appears and is moved before it is read is found`() throws {
        let watch = try Watch()
        let tree = watch.tree
        tree.makeFolder("a")
        try watch.watcher.watch(tree.path, recursively: true)
        // The path of the new folder is another one by the time that it is read.
        tree.makeFolder("a/new")
        tree.makeFIFO("a/new/file")
        tree.move("a", "b")
        #expect(
            try watch.take() == [
                .created(tree("a/new")), .moved(from: tree("a"), to: tree("b")),
                .created(tree("b/new/file")),
            ])
        tree.makeFIFO("b/new/later")
        #expect(try watch.take() == [.created(tree("b/new/later"))])
    }

    @Test func `a folder that is moved over one that was just made is not reported again`() throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["a", "a/b"] { tree.makeFolder(name) }
        for name in ["a/1", "a/b/2"] { tree.makeFIFO(name) }
        try watch.watcher.watch(tree.path, recursively: true)
        #expect(try watch.take() == [])
        tree.makeFolder("c")
        tree.move("a", "c")
        #expect(try watch.take() == [.created(tree("c")), .moved(from: tree("a"), to: tree("c"))])
        for name in ["c/later", "c/b/later"] { tree.makeFIFO(name) }
        tree.remove("c/1")
        #expect(
            try watch.take() == [
                .created(tree("c/later")), .created(tree("c/b/later")), .removed(tree("c/1")),
            ])
    }

    @Test func `another folder in the place of one that has appeared is not taken for it`() throws {
        let watch = try Watch()
        let tree = watch.tree
        try watch.watcher.watch(tree.path, recursively: true)
        tree.makeFolder("a")
        tree.makeFIFO("a/1")
        tree.move("a", "b")
        tree.makeFolder("a")
        tree.makeFIFO("a/2")
        var replica = Replica()
        for event in try watch.take() { replica.take(event) }
        #expect(replica.paths == Set(["a", "a/2", "b", "b/1"].map { tree($0) }))
        for name in ["a/3", "b/4"] { tree.makeFIFO(name) }
        #expect(try watch.take() == [.created(tree("a/3")), .created(tree("b/4"))])
    }

    // MARK: Exchanges

    @Test(arguments: [true, false])
    func `a watched file that is exchanged for one that is not watched is made anew`(
        isFirst: Bool
    ) throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["a", "b"] { tree.makeFIFO(name) }
        try watch.watcher.watch(tree("a"))
        if isFirst { exchange(tree("a"), tree("b")) } else { exchange(tree("b"), tree("a")) }
        let events = try watch.take()
        #expect(events.last == .created(tree("a")))
    }

    @Test(arguments: [(true, true), (false, false), (false, true), (true, false)], [true, false])
    func `what is exchanged for something that is not watched is made anew`(
        areFolders: (inside: Bool, outside: Bool), isOutsideFirst: Bool
    ) throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let (tree, isFolder) = (watch.tree, areFolders.outside)
        for (place, isFolder) in [(tree, areFolders.inside), (other, isFolder)] {
            if isFolder { place.makeFolder("a") } else { place.makeFIFO("a") }
        }
        if isFolder { other.makeFIFO("a/new") }
        tree.makeFolder("b")
        try watch.watcher.watch(tree.path, recursively: true)
        #expect(try watch.take() == [])
        var replica = Replica(tree.all)
        if isOutsideFirst { exchange(other("a"), tree("a")) } else { exchange(tree("a"), other("a")) }
        for event in try watch.take() { replica.take(event) }
        #expect(replica.paths == Set(tree.all))
        tree.makeFIFO(isFolder ? "a/later" : "b/later")
        #expect(try watch.take() == [.created(tree(isFolder ? "a/later" : "b/later"))])
    }

    @Test(arguments: [false, true])
    func `a path that is given after the move of a folder stays watched`(isRecursive: Bool) throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["a", "a/b"] { tree.makeFolder(name) }
        tree.makeFIFO("a/file")
        try watch.watcher.watch(tree("a"), recursively: isRecursive)
        try watch.watcher.watch(tree("a/file"))
        tree.move("a", "c")
        try watch.watcher.watch(tree("c"), recursively: isRecursive)
        try watch.watcher.watch(tree("c/file"))
        let events = try watch.take()
        #expect(
            Set(events.filter { if case .vanished = $0 { true } else { false } })
                == [.vanished(tree("a")), .vanished(tree("a/file"))])
        #expect(Set(watch.watcher.paths) == [tree("c"), tree("c/file")])
        for name in ["c/later", "c/b/later"] { tree.makeFIFO(name) }
        let later = (isRecursive ? ["c/later", "c/b/later"] : ["c/later"]).map { tree($0) }
        #expect(try watch.take() == later.map { .created($0) })
    }

    @Test func `a path in a tree that is given after a move stays watched`() throws {
        let watch = try Watch()
        let tree = watch.tree
        tree.makeFolder("a")
        try watch.watcher.watch(tree.path, recursively: true)
        tree.move("a", "b")
        try watch.watcher.watch(tree("b"))
        #expect(try watch.take() == [.moved(from: tree("a"), to: tree("b"))])
        tree.makeFIFO("b/later")
        #expect(try watch.take() == [.created(tree("b/later"))])
        #expect(Set(watch.watcher.paths) == [tree.path, tree("b")])
    }

    @Test func `what was given below a folder vanishes with it when it is moved`() throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["a", "a/b"] { tree.makeFolder(name) }
        try watch.watcher.watch(tree("a"), recursively: true)
        try watch.watcher.watch(tree("a/b"))
        tree.move("a", "c")
        #expect(Set(try watch.take()) == [.vanished(tree("a")), .vanished(tree("a/b"))])
        #expect(watch.watcher.paths.isEmpty)
        tree.makeFIFO("c/b/later")
        #expect(try watch.take() == [])
    }

    @Test(.serialized, arguments: MoveSequence.all)
    func `after moves that were made before the watcher reads a client knows the tree`(
        sequence: MoveSequence
    ) throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in sequence.folders {
            tree.makeFolder(name)
            tree.makeFIFO("\(name)/in-\(name.replacing("/", with: "-"))")
        }
        for name in sequence.files { tree.makeFIFO(name) }
        try watch.watcher.watch(tree.path, recursively: true)
        var replica = Replica(tree.all)
        for step in sequence.steps { step.make(in: tree) }
        for event in try watch.take() { replica.take(event) }
        #expect(replica.paths == Set(tree.all))
        // What is there is watched.
        let folders = tree.all.filter { (try? $0.stat(followTargetSymlink: false).type) == .directory }
        for folder in folders { mkfifo(folder.appending("later").string, 0o600) }
        let events = try watch.take()
        #expect(Set(events) == Set(folders.map { .created($0.appending("later")) }))
        #expect(events.count == folders.count)
    }

    // MARK: The timer of moves

    @Test func `a watcher that leaves its loop leaves no timer, and reports a move where it is next`()
        async throws
    {
        try await onItsOwnThread {
            let (tree, other, loop) = (TemporaryTree(), TemporaryTree(), RunLoop.current)
            tree.makeFIFO("a")
            let events = Shared<[FileWatcher.Event]>([])
            let watcher = try FileWatcher { _, event in events.update { $0.append(event) } }
            try watcher.watch(tree.path)
            try loop.add(watcher, forMode: .default)
            rename(tree("a").string, other("a").string)
            loop.poll()
            loop.remove(watcher, forMode: .default)
            #expect(loop.poll() == .finished)
            let (carrier, path) = (Carrier(watcher), tree("a"))
            try onAThread {
                let watcher = carrier.value
                try RunLoop.current.add(watcher, forMode: .custom)
                while events.value.isEmpty { RunLoop.current.run(mode: .custom, before: .minutesAway) }
                watcher.close()
            }
            #expect(events.value == [.removed(path)])
        }
    }
}

/// Changes of the names in a tree with files and folders; each of the folders contains a file.
struct MoveSequence: Sendable, CustomTestStringConvertible {
    enum Step {
        case exchange(String, String)
        case move(String, String)
        case make(String)
        case remove(String)

        func make(in tree: TemporaryTree) {
            switch self {
            case .exchange(let one, let other): ReactorTests.exchange(tree(one), tree(other))
            case .move(let old, let new): tree.move(old, new)
            case .make(let name): tree.makeFolder(name)
            case .remove(let name): tree.remove(name)
            }
        }
    }

    var folders: [String] = []
    var files: [String] = []
    let steps: [Step]

    var testDescription: String { "\(folders) \(files) \(steps)" }

    private static let ofTwo: [[Step]] = [
        [.exchange("a", "b"), .move("a", "c")],
        [.exchange("a", "b"), .move("b", "c")],
        [.exchange("a", "b"), .exchange("a", "b"), .move("b", "c")],
        [.exchange("a", "b"), .exchange("a", "b")],
        [.exchange("a", "b"), .move("b", "c"), .move("a", "b"), .move("c", "a")],
        [.exchange("a", "b"), .remove("b/in-a"), .remove("b")],
        [.move("a", "c"), .move("c", "a"), .move("a", "c")],
        [.move("a", "c"), .move("c", "a"), .exchange("a", "b"), .move("a", "c")],
    ]

    static let all =
        ofTwo.map { MoveSequence(folders: ["a", "b"], steps: $0) }
        + ofTwo.map { MoveSequence(files: ["a", "b"], steps: $0) }
        + ofTwo.map { MoveSequence(folders: ["b"], files: ["a"], steps: $0) }
        + [
            MoveSequence(folders: ["c", "c/a", "c/a/b"], steps: [.make("n"), .move("c/a", "n/a")]),
            MoveSequence(
                folders: ["c", "c/a", "c/a/b"],
                steps: [.make("n"), .move("c/a", "n/a"), .remove("c/in-c"), .remove("c")]),
            MoveSequence(folders: ["a", "b", "b/c"], steps: [.exchange("a", "b/c"), .move("a", "b/d")]),
            MoveSequence(
                folders: ["a"], steps: [.make("n"), .make("n/x"), .move("n", "m"), .move("a", "n")]),
            MoveSequence(
                folders: ["a", "a/a", "a/b"], steps: [.make("c"), .move("c", "a/a/c"), .move("a/b", "c")]),
            MoveSequence(
                folders: ["b"], steps: [.make("c"), .make("c/d"), .move("c", "b/m"), .move("b", "c")]),
            MoveSequence(folders: ["b"], steps: [.make("c"), .exchange("c", "b")]),
            MoveSequence(folders: ["b"], steps: [.make("c"), .exchange("b", "c")]),
            MoveSequence(folders: ["a", "b"], steps: [.make("n"), .move("a", "n/a"), .exchange("n", "b")]),
            MoveSequence(folders: ["a", "b"], steps: [.make("b/n"), .move("b/n", "c"), .move("a", "c/a")]),
        ]
}

/// Moves "a" to "c" so that the first half of the move is the last change that one read returns.
private func moveBetweenReads(_ tree: TemporaryTree) {
    // A read returns 2,048 changes of names so short.
    for index in 0..<2_047 { chmod(tree(index % 2 == 0 ? "a" : "b").string, 0o600) }
    tree.move("a", "c")
}

/// The last event of a sequence that is not awaited until the first half of a move has been read for long.
private func lastEventOfTask(_ tree: TemporaryTree) async throws -> FileWatcher.Event? {
    try await withRunLoopThread(name: "pauses") { thread in
        let events = try thread.runLoop.fileEvents(at: tree.path)
        // The loop does not read meanwhile.
        try await onItsOwnThread { thread.runLoop.performAndWait { moveBetweenReads(tree) } }
        try await thread.runLoop.clock().sleep(for: .milliseconds(20))
        var last: FileWatcher.Event?
        var count = 0
        for try await event in events {
            (last, count) = (event, count + 1)
            if count == 2_048 { break }
        }
        return last
    }
}

/// The last event of a watcher that is in no mode after the first half of a move has been read.
private func lastEventOfHandler(_ tree: TemporaryTree) throws -> FileWatcher.Event? {
    let loop = RunLoop.current
    var events: [FileWatcher.Event] = []
    let watcher = try FileWatcher { watcher, event in
        events.append(event)
        if events.count == 2_047 { loop.remove(watcher, forMode: .default) }
    }
    try watcher.watch(tree.path)
    try loop.add(watcher, forMode: .default)
    moveBetweenReads(tree)
    while events.count < 2_047 { loop.run(mode: .default, before: .minutesAway) }
    let end = Deadline.now + .milliseconds(20)
    loop.perform(after: .milliseconds(20)) {}
    while Deadline.now < end { loop.run(in: .default, until: end) }
    try loop.add(watcher, forMode: .default)
    while events.count < 2_048 { loop.run(mode: .default, before: .minutesAway) }
    watcher.close()
    return events.last
}
