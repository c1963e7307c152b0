import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct FileWatcherTests {
    @Test func `a folder's files come, change and go`() throws {
        let watch = try Watch()
        let tree = watch.tree
        try watch.watcher.watch(tree.path)
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

    @Test func `what is moved from and to other folders comes and goes`() throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        try tree.write("a")
        try watch.watcher.watch(tree.path)
        rename(tree("a").string, other("a").string)
        rename(other("a").string, tree("b").string)
        let events = try watch.take()
        #expect(Set(events) == [.removed(tree("a")), .created(tree("b"))])
        #expect(events.count == 2)
    }

    @Test func `a file is watched by its path, also when it is missing or replaced`() throws {
        let watch = try Watch()
        let tree = watch.tree
        let file = tree("settings")
        try watch.watcher.watch(file)
        try tree.write("settings", "1")
        #expect(try watch.take() == [.created(file), .modified(file), .closedAfterWriting(file)])
        try tree.write("settings.new", "2")
        tree.move("settings.new", "settings")
        #expect(try watch.take() == [.created(file)])
        try tree.write("settings", "3")
        tree.move("settings", "settings~")
        #expect(try watch.take() == [.modified(file), .closedAfterWriting(file), .removed(file)])
    }

    @Test func `folders below are watched, and those that appear are`() throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        tree.makeFolder("a")
        tree.makeFolder("a/b")
        try watch.watcher.watch(tree.path, recursively: true)
        try tree.write("a/b/file")
        #expect(try watch.take() == [.created(tree("a/b/file")), .closedAfterWriting(tree("a/b/file"))])
        // Made before the loop can watch it, and after.
        tree.makeFolder("new")
        try tree.write("new/1")
        let first = try watch.take()
        #expect(Array(first.prefix(2)) == [.created(tree("new")), .created(tree("new/1"))])
        try tree.write("new/2")
        #expect(try watch.take() == [.created(tree("new/2")), .closedAfterWriting(tree("new/2"))])
        // Moved here with its content.
        other.makeFolder("x")
        try other.write("x/file")
        rename(other("x").string, tree("x").string)
        #expect(try watch.take() == [.created(tree("x")), .created(tree("x/file"))])
    }

    @Test func `a folder is followed when it is renamed within the tree, and not beyond`() throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        for name in ["a", "a/b", "c"] { tree.makeFolder(name) }
        try watch.watcher.watch(tree.path, recursively: true)
        tree.move("a", "c/d")
        #expect(try watch.take() == [.moved(from: tree("a"), to: tree("c/d"))])
        try tree.write("c/d/b/file")
        #expect(
            try watch.take() == [.created(tree("c/d/b/file")), .closedAfterWriting(tree("c/d/b/file"))])
        rename(tree("c/d").string, other("d").string)
        #expect(try watch.take() == [.removed(tree("c/d"))])
        try other.write("d/b/file2")
        #expect(try watch.take() == [])
        #expect("\(watch.watcher!)" == "file watcher: 1 paths, 2 folders")
    }

    @Test(arguments: [true, false])
    func `a watched thing that vanishes is an event`(isRecursive: Bool) throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["a", "b", "c", "c/d"] { tree.makeFolder(name) }
        for path in ["a", "b/file", "c"] { try watch.watcher.watch(tree(path), recursively: isRecursive) }
        tree.remove("a")
        tree.remove("b")
        tree.move("c", "e")
        let events = try watch.take()
        for path in ["a", "b/file", "c"] { #expect(events.contains(.vanished(tree(path)))) }
        #expect(watch.watcher.paths.isEmpty)
        try tree.write("e/file")
        #expect(try watch.take() == [])
        watch.finish("0 paths, 0 folders")
        #expect(watch.watcher.explain().contains("it watches no path"))
    }

    @Test func `a path that is given again is that of the folder that is there now`() throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["p", "p/r", "p/r/a"] { tree.makeFolder(name) }
        for path in ["p/r", "p/r/a/file"] { try watch.watcher.watch(tree(path), recursively: true) }
        tree.move("p", "q")
        for name in ["p", "p/r", "p/r/a"] { tree.makeFolder(name) }
        for path in ["p/r", "p/r/a/file"] { try watch.watcher.watch(tree(path), recursively: true) }
        tree.makeFIFO("q/r/old")
        for name in ["q/r/old", "q/r/a", "q/r"] { tree.remove(name) }
        tree.makeFIFO("p/r/a/file")
        #expect(try watch.take() == [.created(tree("p/r/a/file"))])
        #expect(Set(watch.watcher.paths) == [tree("p/r"), tree("p/r/a/file")])
        for path in ["p/r", "p/r/a/file"] { watch.watcher.unwatch(tree(path)) }
        #expect("\(watch.watcher!)" == "file watcher: 0 paths, 0 folders")
    }

    @Test func `a folder that is replaced and given again before its end is read has not vanished`()
        async throws
    {
        try await onItsOwnThread {
            let watch = try Watch()
            let tree = watch.tree
            for name in ["r", "r/a"] { tree.makeFolder(name) }
            try watch.watcher.watch(tree("r"), recursively: true)
            for name in ["r/a", "r"] { tree.remove(name) }
            for name in ["r", "r/b"] { tree.makeFolder(name) }
            try watch.watcher.watch(tree("r"), recursively: true)
            tree.makeFIFO("r/b/file")
            #expect(try watch.take() == [.created(tree("r/b/file"))])
            watch.watcher.unwatch(tree("r"))
            #expect("\(watch.watcher!)" == "file watcher: 0 paths, 0 folders")
        }
    }

    @Test func `two dots behind a symbolic link are the folder above its target`() throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["other", "other/folder"] { tree.makeFolder(name) }
        symlink("other/folder", tree("link").string)
        let file = tree("link/../file")
        try watch.watcher.watch(file)
        #expect(watch.watcher.paths == [file])
        for name in ["file", "other/file"] { tree.makeFIFO(name) }
        #expect(try watch.take() == [.created(file)])
    }

    @Test func `a path that is not watched any more reports nothing, and others go on`() throws {
        let watch = try Watch()
        let tree = watch.tree
        for name in ["a", "a/b", "a/c"] { tree.makeFolder(name) }
        try watch.watcher.watch(tree("a"), recursively: true)
        try watch.watcher.watch(tree("a/b"))
        try watch.watcher.watch(tree("a/c/file"))
        #expect("\(watch.watcher!)" == "file watcher: 3 paths, 3 folders")
        watch.watcher.unwatch(tree("a"))
        for name in ["a/1", "a/b/2", "a/c/3", "a/c/file"] { try tree.write(name) }
        #expect(
            try watch.take() == [
                .created(tree("a/b/2")), .closedAfterWriting(tree("a/b/2")), .created(tree("a/c/file")),
                .closedAfterWriting(tree("a/c/file")),
            ])
        watch.watcher.unwatch(tree("a/b"))
        watch.watcher.unwatch(tree("a/c/file"))
        #expect("\(watch.watcher!)" == "file watcher: 0 paths, 0 folders")
    }

    @Test func `watching a path again loses no event`() throws {
        let watch = try Watch()
        let tree = watch.tree
        tree.makeFolder("folder")
        try watch.watcher.watch(tree.path, recursively: true)
        for name in ["folder/a", "b"] { tree.makeFIFO(name) }
        try watch.watcher.watch(tree.path, recursively: true)
        let events = try watch.take()
        #expect(events == [.created(tree("folder/a")), .created(tree("b"))])
        tree.makeFIFO("c")
        try watch.watcher.watch(tree.path)
        // Not recursively any more.
        tree.makeFIFO("folder/d")
        let later = try watch.take()
        #expect(later == [.created(tree("c"))])
    }

    @Test func `a folder under two paths is watched until both are given up`() throws {
        let watch = try Watch()
        let tree = watch.tree
        tree.makeFolder("folder")
        symlink(tree("folder").string, tree("link").string)
        let paths = [tree("folder"), tree("link"), tree("folder/a"), tree("link/a")]
        for path in paths { try watch.watcher.watch(path) }
        for path in paths {
            try tree.write("folder/a")
            #expect(try watch.take().last == .closedAfterWriting(tree("folder/a")))
            watch.watcher.unwatch(path)
        }
        try tree.write("folder/a")
        #expect(try watch.take() == [])
        #expect("\(watch.watcher!)" == "file watcher: 0 paths, 0 folders")
    }

    @Test(arguments: [true, false])
    func `paths vanish with a folder above them that is moved`(isWithinTree: Bool) throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        for folder in ["a", "a/b", "a/b/c"] { tree.makeFolder(folder) }
        try watch.watcher.watch(tree.path, recursively: true)
        for path in ["a/b/c", "a/b/c/file"] { try watch.watcher.watch(tree(path)) }
        rename(tree("a").string, (isWithinTree ? tree("z") : other("z")).string)
        let move =
            isWithinTree ? FileWatcher.Event.moved(from: tree("a"), to: tree("z")) : .removed(tree("a"))
        let vanished = [tree("a/b/c"), tree("a/b/c/file")].map { FileWatcher.Event.vanished($0) }
        #expect(try Set(watch.take()) == Set(vanished + [move]))
        #expect(watch.watcher.paths == [tree.path])
        try (isWithinTree ? tree : other).write("z/b/c/file")
        let file = tree("z/b/c/file")
        #expect(try watch.take() == (isWithinTree ? [.created(file), .closedAfterWriting(file)] : []))
        watch.watcher.unwatch(tree.path)
        #expect("\(watch.watcher!)" == "file watcher: 0 paths, 0 folders")
    }

    @Test func `names that are not UTF-8 are reported and followed`() throws {
        let watch = try Watch()
        let name = FilePath.Component(platformString: [0x61, CChar(bitPattern: 0xff), 0])!
        let folder = watch.tree.path.appending(name)
        _ = folder.withPlatformString { mkdir($0, 0o755) }
        try watch.watcher.watch(watch.tree.path, recursively: true)
        let file = folder.appending(name)
        let descriptor = try FileDescriptor.open(
            file, .writeOnly, options: .create, permissions: .ownerReadWrite)
        try descriptor.close()
        #expect(try watch.take() == [.created(file), .closedAfterWriting(file)])
    }

    @Test func `a relative path is reported as given, and leads where it led when it was given`() async throws
    {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                let (watch, other) = (try Watch(), TemporaryTree())
                let tree = watch.tree
                chdir(tree.path.string)
                for place in [tree, other] { place.makeFolder("folder") }
                for path in ["file", "./folder/", "."] {
                    try watch.watcher.watch(FilePath(path), recursively: true)
                }
                chdir(other.path.string)
                for name in ["file", "folder/file", "folder/new"] { other.makeFIFO(name) }
                tree.makeFIFO("file")
                for folder in ["folder/new", "new"] { tree.makeFolder(folder) }
                _ = try watch.take()
                for name in ["folder/new/file", "new/file"] { tree.makeFIFO(name) }
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

    @Test func `closing a watcher in its handler ends it, and releases the handler when it returns`()
        async throws
    {
        try await onItsOwnThread {
            let (tree, freed, loop) = (TemporaryTree(), Shared(false), RunLoop.current)
            var calls = 0
            let canary = Shared<AtEnd?>(AtEnd { freed.value = true })
            let watcher = try FileWatcher { [canary = canary.update { $0.take()! }] watcher, _ in
                withExtendedLifetime(canary) {
                    calls += 1
                    watcher.close()
                    #expect(!freed.value && !watcher.isValid)
                }
            }
            try watcher.watch(tree.path)
            try loop.add(watcher, forMode: .default)
            try tree.write("a", "text")
            #expect(loop.run(in: .default) == .finished)
            #expect(calls == 1 && freed.value)
            #expect(throws: IOError.self) { try watcher.watch(tree.path) }
            #expect(watcher.paths.isEmpty && "\(watcher)" == "file watcher (closed)")
        }
    }

    @Test func `events wait for a mode that runs, and are not delivered in others`() throws {
        let (tree, loop) = (TemporaryTree(), RunLoop.current)
        var events: [FileWatcher.Event] = []
        let watcher = try FileWatcher { watcher, event in
            events.append(event)
            loop.remove(watcher, forMode: .custom)
        }
        try watcher.watch(tree.path)
        try tree.write("a")
        #expect(loop.poll() == .finished)
        try loop.add(watcher, forMode: .custom)
        loop.poll(.custom)
        #expect(events == [.created(tree("a"))])
        try loop.add(watcher, forMode: .common)
        while events.count < 2 { loop.poll(.tracking) }
        #expect(events == [.created(tree("a")), .closedAfterWriting(tree("a"))])
        watcher.close()
    }

    @Test func `a watcher that is dropped, or whose thread ends, is freed`() async throws {
        let freed = Countdown(2)
        try await onItsOwnThread {
            for isAdded in [false, true] {
                let canary = AtEnd { freed.count() }
                let watcher = try FileWatcher { _, _ in withExtendedLifetime(canary) {} }
                try watcher.watch("/tmp")
                if isAdded { try RunLoop.current.add(watcher, forMode: .default) }
            }
        }
        freed.wait()
    }

    // MARK: Many, and limits

    @Test func `thousands of changes and a thousand folders are reported, on one descriptor`() throws {
        let watch = try Watch()
        let tree = watch.tree
        for index in 0..<1_000 {
            tree.makeFolder("\(index)")
            mkfifo(tree("\(index)/file").string, 0o600)
        }
        try watch.watcher.watch(tree.path, recursively: true)
        watch.finish("1 paths, 1001 folders")
        _ = try watch.take()
        let path = tree.path.string
        for index in 0..<3_000 { chmod("\(path)/\(index % 1_000)/file", 0o600) }
        watch.run { watch.events.count >= 3_000 }
        for index in stride(from: 0, to: 3_000, by: 277) {
            #expect(watch.events[index] == .attributesChanged(tree("\(index % 1_000)/file")))
        }
        #expect(watch.events.count == 3_000)
    }

    @Test func `a large tree is watched, moved away and back, and removed`() throws {
        let (watch, other) = (try Watch(), TemporaryTree())
        let tree = watch.tree
        tree.makeFolder("top")
        for index in 0..<500 { tree.makeFolder("top/\(index)") }
        try watch.watcher.watch(tree.path, recursively: true)
        // The client is told to look once all is watched, as not all is in the call.
        watch.run { watch.events.contains(.overflowed) }
        watch.finish("1 paths, 502 folders")
        tree.move("top", "moved")
        _ = try watch.take()
        tree.makeFolder("moved/499/new")
        #expect(try watch.take() == [.created(tree("moved/499/new"))])
        rename(tree("moved").string, other("moved").string)
        #expect(try watch.take() == [.removed(tree("moved"))])
        watch.finish("1 paths, 1 folders")
        rename(other("moved").string, tree("top").string)
        watch.finish("1 paths, 503 folders")
        #expect(try Set(watch.take()) == Set(tree.all.map { .created($0) }))
        tree.remove("top/499/new")
        for index in 0..<500 { tree.remove("top/\(index)") }
        watch.finish("1 paths, 2 folders")
        #expect(try watch.take().count == 501)
    }

    @Test func `giving up a large tree ends all its watches`() throws {
        let watch = try Watch()
        for index in 0..<1000 { watch.tree.makeFolder("\(index)") }
        try watch.watcher.watch(watch.tree.path, recursively: true)
        watch.finish("1 paths, 1001 folders")
        watch.watcher.unwatch(watch.tree.path)
        watch.finish("0 paths, 0 folders")
    }

    @Test func `events that the kernel drops are told, and new folders are found again`() throws {
        let watch = try Watch()
        let tree = watch.tree
        tree.makeFolder("a")
        try watch.watcher.watch(tree.path, recursively: true)
        let other = TemporaryTree()
        try watch.watcher.watch(other("watched"))
        for name in ["1", "2"] { try other.write(name) }
        let paths = [other("1").string, other("2").string]
        // Cheap events. The kernel's limit is 16,384 by default.
        for index in 0..<20_000 { chmod(paths[index % 2], 0o600) }
        tree.makeFolder("b")
        tree.remove("a")
        watch.run { watch.events.contains(.overflowed) }
        _ = try watch.take()
        try tree.write("b/new")
        #expect(try watch.take() == [.created(tree("b/new")), .closedAfterWriting(tree("b/new"))])
        #expect("\(watch.watcher!)" == "file watcher: 2 paths, 3 folders")
    }

    @Test func `a path that cannot be watched is named`() throws {
        let watch = try Watch()
        let error = #expect(throws: IOError.self) { try watch.watcher.watch("/no/folder/file") }
        #expect(error?.description == "watch /no/folder: No such file or directory")
        symlink("loop", watch.tree("loop").string)
        let loop = #expect(throws: IOError.self) { try watch.watcher.watch(watch.tree("loop")) }
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

    @Test(.enabled(if: getuid() == 0)) func `without watches the error names the sysctl, and others go on`()
        async throws
    {
        let tree = TemporaryTree()
        for folder in ["a", "b", "c"] { tree.makeFolder(folder) }
        let lines = try await probeMainLoop("few watches", [tree.path.string])
        let refusal = "(limit: fs.inotify.max_user_watches): No space left on device"
        #expect(
            lines == [
                "refused: watch \(tree("c")) \(refusal)", "2 paths", "created \(tree("a/new"))",
                "watch \(tree("a/new")) \(refusal)", "created \(tree("b/file"))", "again: 2 paths",
            ])
    }

    @Test(.enabled(if: getuid() == 0))
    func `what was watched still is when changes were lost, without watches`()
        async throws
    {
        let tree = TemporaryTree()
        tree.makeFolder("a")
        let lines = try await probeMainLoop("few watches after an overflow", [tree.path.string])
        #expect(
            lines == [
                "watch \(tree("b")) (limit: fs.inotify.max_user_watches): No space left on device",
                "overflowed",
                "created \(tree("a/file"))", "created \(tree("file"))", "1 paths",
            ])
    }

    // MARK: Tasks

    @Test func `a task receives events, and reads none while it awaits none`() async throws {
        try await withRunLoopThread(name: "files") { thread in
            let tree = TemporaryTree()
            let events = try thread.runLoop.fileEvents(at: tree.path)
            for index in 0..<100 { mkfifo(tree("\(index)").string, 0o600) }
            var count = 0
            for try await event in events {
                #expect(event == .created(tree("\(count)")))
                count += 1
                if count == 100 { break }
            }
            let task = Task { for try await _ in events {} }
            task.cancel()
            _ = await task.result
        }
    }
}
