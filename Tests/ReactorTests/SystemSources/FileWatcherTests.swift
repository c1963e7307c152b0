import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct FileWatcherTests {
    private let watch: Watch
    private var tree: TemporaryTree { watch.tree }
    private let other = TemporaryTree()

    init() throws { watch = try Watch() }

    // MARK: What is reported

    @Test func `a folder's files come, change and go`() throws {
        try watch.watch()
        try tree.write("a", "text")
        chmod(tree("a").string, 0o400)
        tree.move("a", "b")
        tree.remove("b")
        #expect(
            try watch.take() == [
                .created(tree("a")), .modified(tree("a")), .closedAfterWriting(tree("a")),
                .attributesChanged(tree("a")), .moved(from: tree("a"), to: tree("b")),
                .removed(tree("b")),
            ])
    }

    @Test func `a file is watched by its path, also when it is missing or replaced`() throws {
        let file = tree("settings")
        try watch.watch("settings")
        try tree.write("settings", "1")
        #expect(try watch.take() == [.created(file), .modified(file), .closedAfterWriting(file)])
        tree.make("settings.new")
        tree.move("settings.new", "settings")
        #expect(try watch.take() == [.created(file)])
        tree.move("settings", "settings~")
        #expect(try watch.take() == [.removed(file)])
    }

    @Test(arguments: [true, false])
    func `a watched thing that vanishes is an event`(isRecursive: Bool) throws {
        tree.make("a/", "b/", "c/", "c/d/")
        for path in ["a", "b/file", "c"] { try watch.watch(path, recursively: isRecursive) }
        tree.remove("a", "b")
        tree.move("c", "e")
        let events = try watch.take()
        for path in ["a", "b/file", "c"] { #expect(events.contains(.vanished(tree(path)))) }
        #expect(watch.watcher.paths.isEmpty)
        tree.make("e/file")
        #expect(try watch.take() == [])
        watch.finish(paths: 0, folders: 0)
    }

    @Test func `a path that is given again is that of the folder that is there now`() throws {
        let paths = ["p/r", "p/r/a/file"]
        for isFirst in [true, false] {
            tree.make("p/", "p/r/", "p/r/a/")
            for path in paths { try watch.watch(path, recursively: true) }
            if isFirst { tree.move("p", "q") }
        }
        tree.make("q/r/old")
        tree.remove("q/r/old", "q/r/a", "q/r")
        tree.make("p/r/a/file")
        #expect(try watch.take() == [.created(tree("p/r/a/file"))])
        #expect(Set(watch.watcher.paths) == Set(paths.map { tree($0) }))
        for path in paths { watch.watcher.unwatch(tree(path)) }
        watch.finish(paths: 0, folders: 0)
    }

    @Test func `a folder that is watched again, without those below it, reports none of them`() throws {
        tree.make("a/")
        try watch.watch(recursively: true)
        try watch.watch()
        tree.make("a/file", "file")
        #expect(try watch.take() == [.created(tree("file"))])
        watch.watcher.unwatch(tree.path)
        watch.finish(paths: 0, folders: 0)
    }

    @Test(arguments: [true, false])
    func `paths vanish with a folder above them that is moved`(isWithinTree: Bool) throws {
        tree.make("a/", "a/b/", "a/b/c/")
        try watch.watch(recursively: true)
        for path in ["a/b/c", "a/b/c/file"] { try watch.watch(path) }
        tree.move("a", isWithinTree ? tree : other, "z")
        let move =
            isWithinTree ? FileWatcher.Event.moved(from: tree("a"), to: tree("z")) : .removed(tree("a"))
        #expect(try Set(watch.take()) == [.vanished(tree("a/b/c")), .vanished(tree("a/b/c/file")), move])
        #expect(watch.watcher.paths == [tree.path])
        (isWithinTree ? tree : other).make("z/b/c/file")
        #expect(try watch.take() == (isWithinTree ? [.created(tree("z/b/c/file"))] : []))
        watch.watcher.unwatch(tree.path)
        watch.finish(paths: 0, folders: 0)
    }

    // MARK: Paths

    @Test func `two dots behind a symbolic link are the folder above its target`() throws {
        tree.make("other/", "other/folder/")
        symlink("other/folder", tree("link").string)
        let file = tree("link/../file")
        try watch.watcher.watch(file)
        #expect(watch.watcher.paths == [file])
        tree.make("file", "other/file")
        #expect(try watch.take() == [.created(file)])
    }

    @Test func `a path that is not watched any more reports nothing, and others still do`() throws {
        tree.make("a/", "a/b/", "a/c/")
        try watch.watch("a", recursively: true)
        try watch.watch("a/b")
        try watch.watch("a/c/file")
        watch.finish(paths: 3, folders: 3)
        watch.watcher.unwatch(tree("a"))
        tree.make("a/1", "a/b/2", "a/c/3", "a/c/file")
        #expect(try watch.take() == [.created(tree("a/b/2")), .created(tree("a/c/file"))])
        for path in ["a/b", "a/c/file"] { watch.watcher.unwatch(tree(path)) }
        watch.finish(paths: 0, folders: 0)
    }

    @Test func `a folder under two paths is watched until both are given up`() throws {
        tree.make("folder/", "folder/a")
        symlink(tree("folder").string, tree("link").string)
        let paths = ["folder", "link", "folder/a", "link/a"]
        for path in paths { try watch.watch(path) }
        for path in paths {
            chmod(tree("folder/a").string, 0o600)
            #expect(try watch.take() == [.attributesChanged(tree("folder/a"))])
            watch.watcher.unwatch(tree(path))
        }
        chmod(tree("folder/a").string, 0o600)
        #expect(try watch.take() == [])
        watch.finish(paths: 0, folders: 0)
    }

    @Test func `names that are not UTF-8 are reported and followed`() throws {
        let name = FilePath.Component(platformString: [0x61, CChar(bitPattern: 0xff), 0])!
        let folder = tree.path.appending(name)
        _ = folder.withPlatformString { mkdir($0, 0o755) }
        try watch.watch(recursively: true)
        let file = folder.appending(name)
        _ = file.withPlatformString { mkfifo($0, 0o600) }
        #expect(try watch.take() == [.created(file)])
    }

    @Test func `a relative path is reported as given, and leads where it led when it was given`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let (watch, other) = (try Watch(), TemporaryTree())
                let tree = watch.tree
                chdir(tree.path.string)
                for place in [tree, other] { place.make("folder/") }
                for path in ["file", "./folder/", "."] {
                    try watch.watcher.watch(FilePath(path), recursively: true)
                }
                chdir(other.path.string)
                other.make("file", "folder/file", "folder/new")
                tree.make("file", "folder/new/", "new/")
                _ = try watch.take()
                tree.make("folder/new/file", "new/file")
                #expect(try watch.take() == [.created("folder/new/file"), .created("new/file")])
                #expect(Set(watch.watcher.paths) == ["file", "folder", "."])
                // Another file of that name.
                try watch.watcher.watch("file")
                other.remove("file")
                tree.remove("file")
                #expect(try watch.take() == [.removed("file"), .removed("file")])
            }
        }
    }

    // MARK: Lifetime

    @Test func `events wait for a mode that runs, and are not delivered in others`() throws {
        let loop = RunLoop.current
        var events: [FileWatcher.Event] = []
        let watcher = try FileWatcher { watcher, event in
            events.append(event)
            loop.remove(watcher, forMode: .custom)
        }
        try watcher.watch(tree.path)
        tree.make("a", "b")
        loop.poll()
        try loop.add(watcher, forMode: .custom)
        loop.poll(.custom)
        #expect(events == [.created(tree("a"))])
        try loop.add(watcher, forMode: .common)
        loop.serve(in: .tracking) { events.count == 2 }
        #expect(events.last == .created(tree("b")))
        watcher.cancel()
    }

    // MARK: Many, and limits

    @Test(.runLoop(timeLimit: .seconds(60)))
    func `a large tree is watched, moved away and back, and removed`() throws {
        tree.make("top/")
        for index in 0..<300 { tree.make("top/\(index)/") }
        try watch.watch(recursively: true)
        // The client is told to look once all is watched, as not all is in the call.
        watch.run { watch.events.contains(.overflowed) }
        watch.finish(folders: 302)
        tree.move("top", "moved")
        _ = try watch.take()
        tree.make("moved/299/new/")
        #expect(try watch.take() == [.created(tree("moved/299/new"))])
        tree.move("moved", other, "moved")
        #expect(try watch.take() == [.removed(tree("moved"))])
        watch.finish(folders: 1)
        other.move("moved", tree, "top")
        watch.finish(folders: 303)
        #expect(try Set(watch.take()) == Set(tree.all().map { .created($0) }))
        tree.remove("top/299/new")
        for index in 0..<300 { tree.remove("top/\(index)") }
        watch.finish(folders: 2)
        #expect(try watch.take().count == 301)
    }

    /// The kernel's queue has room for 16,384 events.
    @Test(.runLoop(timeLimit: .seconds(60)))
    func `events that the kernel drops are told, and new folders are found again`() throws {
        tree.make("a/")
        other.make("1", "2")
        try watch.watch(recursively: true)
        try watch.watcher.watch(other("watched"))
        let paths = [other("1").string, other("2").string]
        for index in 0..<20_000 { chmod(paths[index % 2], 0o600) }
        tree.make("b/")
        tree.remove("a")
        watch.run { watch.events.contains(.overflowed) }
        _ = try watch.take()
        tree.make("b/new")
        #expect(try watch.take() == [.created(tree("b/new"))])
        watch.finish(paths: 2, folders: 3)
    }

    @Test func `a path that cannot be watched is named`() throws {
        symlink("loop", tree("loop").string)
        let missing = #expect(throws: IOError.self) { try watch.watcher.watch("/no/folder/file") }
        #expect(missing?.subject == "/no/folder" && missing?.errno == .noSuchFileOrDirectory)
        let loop = #expect(throws: IOError.self) { try watch.watch("loop") }
        #expect(loop?.errno == .tooManySymbolicLinkLevels)
        #expect(watch.watcher.paths.isEmpty)
    }

    @Test(.enabled(if: getuid() == 0)) func `without instances the error names the sysctl`() async {
        await #expect(processExitsWith: .success) {
            // The limit is a user's: that of the other tests is not touched.
            setuid(1_000_000 + uid_t(getpid()))
            let error = #expect(throws: IOError.self) {
                var watchers: [FileWatcher] = []
                while watchers.count < 5_000 { watchers.append(try FileWatcher { _, _ in }) }
            }
            #expect(error?.errno == .tooManyOpenFiles)
            #expect(error?.subject.contains("fs.inotify.max_user_instances") == true)
        }
    }

    @Test(.enabled(if: getuid() == 0)) func `without watches an error names the sysctl, others still report`()
        async throws
    {
        tree.make("a/", "b/", "c/")
        let limit = "(limit: fs.inotify.max_user_watches)"
        #expect(
            try await probeMainLoop("few watches", [tree.path.string]) == [
                "refused c \(limit)", "2 paths", "created a/new", "refused a/new \(limit)", "created b/file",
                "again 2 paths",
            ])
    }

    @Test(.runLoop(timeLimit: .seconds(60)), .enabled(if: getuid() == 0))
    func `what was watched still is when changes were lost, without watches`() async throws {
        tree.make("a/")
        #expect(
            try await probeMainLoop("few watches after an overflow", [tree.path.string]) == [
                "refused b (limit: fs.inotify.max_user_watches)", "overflowed", "created a/file",
                "created file",
                "1 paths",
            ])
    }
}
