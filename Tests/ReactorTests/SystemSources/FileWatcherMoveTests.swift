import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Moves whose halves come apart, and paths that are given while something moves.
@Suite(.runLoop) struct FileWatcherMoveTests {
    /// The first half of the move is the last change that one read returns.
    @Test func `a move is one event though its halves are read at different times`() throws {
        let (loop, tree) = (RunLoop.current, TemporaryTree())
        tree.make("a", "b")
        var events: [FileWatcher.Event] = []
        let watcher = try FileWatcher { watcher, event in
            events.append(event)
            if events.count == 2_047 { loop.remove(watcher, forMode: .default) }
        }
        try watcher.watch(tree.path)
        try loop.add(watcher, forMode: .default)
        tree.moveBetweenReads()
        loop.serve { events.count == 2_047 }
        // Longer than the second half is missed.
        loop.hold(.default)
        loop.run(in: .default, until: .now + .milliseconds(8))
        try loop.add(watcher, forMode: .default)
        loop.serve { events.count == 2_048 }
        watcher.cancel()
        #expect(events.last == .moved(from: tree("a"), to: tree("c")))
    }

    @Test func `a move is one event of a task that pauses between its halves`() async throws {
        let (home, tree) = (LoopThread(), TemporaryTree())
        tree.make("a", "b")
        let events = try home.loop.fileEvents(at: [tree.path])
        // The loop does not read meanwhile.
        home.loop.performSynchronously { tree.moveBetweenReads() }
        try await home.loop.clock().sleep(for: .milliseconds(8))
        let iterator = events.makeAsyncIterator()
        for _ in 0..<2_047 { _ = try await iterator.next() }
        #expect(try await iterator.next() == .moved(from: tree("a"), to: tree("c")))
    }

    @Test func `a move to elsewhere is reported in a mode that the watcher joins after it`() throws {
        let (loop, tree, other) = (RunLoop.current, TemporaryTree(), TemporaryTree())
        tree.make("a")
        var events: [FileWatcher.Event] = []
        let watcher = try FileWatcher { _, event in events.append(event) }
        try watcher.watch(tree.path)
        try loop.add(watcher, forMode: .custom)
        tree.move("a", other, "a")
        loop.poll(.custom)
        try loop.add(watcher, forMode: .tracking)
        loop.serve(in: .tracking) { !events.isEmpty }
        watcher.cancel()
        #expect(events == [.removed(tree("a"))])
    }

    @Test func `an exchange is a move, and both paths are made anew`() throws {
        let watch = try Watch()
        let (one, other) = (watch.tree("a"), watch.tree("b"))
        watch.tree.make("a", "b")
        try watch.watch()
        watch.tree.exchange("a", "b")
        #expect(
            try watch.take() == [
                .moved(from: one, to: other), .removed(other), .created(one), .created(other),
            ])
    }

    @Test(arguments: [("a", "b"), ("b", "a")])
    func `a watched file that is exchanged for one that is not watched is made anew`(
        first: String, second: String
    ) throws {
        let watch = try Watch()
        watch.tree.make("a", "b")
        try watch.watch("a")
        watch.tree.exchange(first, second)
        #expect(try watch.take().last == .created(watch.tree("a")))
    }

    @Test(arguments: [false, true])
    func `a path that is given after the move of a folder stays watched`(isRecursive: Bool) throws {
        let watch = try Watch()
        let tree = watch.tree
        tree.make("a/", "a/b/", "a/file")
        try watch.watch("a", recursively: isRecursive)
        try watch.watch("a/file")
        tree.move("a", "c")
        try watch.watch("c", recursively: isRecursive)
        try watch.watch("c/file")
        let events = try watch.take()
        #expect(Set(events).isSuperset(of: [.vanished(tree("a")), .vanished(tree("a/file"))]))
        #expect(Set(watch.watcher.paths) == [tree("c"), tree("c/file")])
        tree.make("c/later", "c/b/later")
        let later = (isRecursive ? ["c/later", "c/b/later"] : ["c/later"]).map { tree($0) }
        #expect(try watch.take() == later.map { .created($0) })
    }

    @Test func `a watcher that leaves its loop leaves no timer, and reports a move where it is next`() throws
    {
        let (tree, other, loop) = (TemporaryTree(), TemporaryTree(), RunLoop.current)
        tree.make("a")
        var events: [FileWatcher.Event] = []
        let watcher = try FileWatcher { _, event in events.append(event) }
        try watcher.watch(tree.path)
        try loop.add(watcher, forMode: .default)
        tree.move("a", other, "a")
        loop.poll()
        loop.remove(watcher, forMode: .default)
        #expect(loop.poll() == .finished)
        try loop.add(watcher, forMode: .custom)
        loop.serve(in: .custom) { !events.isEmpty }
        watcher.cancel()
        #expect(events == [.removed(tree("a"))])
    }
}

extension TemporaryTree {
    /// Moves "a" to "c" so that the first half of the move is the last change that one read returns.
    fileprivate func moveBetweenReads() {
        // A read returns 2,048 changes of names so short.
        let (one, other) = (self("a").string, self("b").string)
        for index in 0..<2_047 { chmod(index % 2 == 0 ? one : other, 0o600) }
        move("a", "c")
    }
}
