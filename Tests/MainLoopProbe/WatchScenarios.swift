import CReactorTestSupport
import Glibc
import Reactor
import SystemPackage

/// Watches folders where the user may have two watches of inotify(7) only: in a user namespace of its own.
@MainActor func fewWatches() throws {
    let tree = FilePath(CommandLine.arguments[1])
    try limitWatches()
    var isEnough = false
    let watcher = try FileWatcher { watcher, event in
        switch event {
        case .created(let path):
            print("created", path)
            isEnough = path.lastComponent == "file"
        case .errorOccurred(let error): print(error)
        default: break
        }
    }
    try RunLoop.main.add(watcher, forMode: .default)
    try watcher.watch(tree.appending("a"), recursively: true)
    try watcher.watch(tree.appending("b"))
    do { try watcher.watch(tree.appending("c")) } catch { print("refused:", error) }
    print(watcher.paths.count, "paths")
    mkdir(tree.appending("a").appending("new").string, 0o755)
    mkfifo(tree.appending("b").appending("file").string, 0o600)
    while !isEnough { RunLoop.main.run(mode: .default, before: .distantFuture) }
    watcher.unwatch(tree.appending("b"))
    try watcher.watch(tree.appending("c"))
    print("again:", watcher.paths.count, "paths")
    watcher.close()
}

/// Limits the watches of inotify(7) to two. To be called before the process has a second thread.
@MainActor private func limitWatches() throws {
    guard unshare(CLONE_NEWUSER) == 0 else { return print("unshare: \(Errno(rawValue: errno))") }
    let limit = try FileDescriptor.open("/proc/sys/user/max_inotify_watches", .writeOnly)
    try limit.closeAfter { _ = try limit.writeAll("2".utf8) }
}

/// Loses changes while the limit of watches keeps the watcher from watching a new folder.
@MainActor func fewWatchesAfterOverflow() throws {
    let tree = FilePath(CommandLine.arguments[1])
    try limitWatches()
    var isEnough = false
    let watcher = try FileWatcher { watcher, event in
        switch event {
        case .created(let path):
            print("created", path)
            isEnough = path.lastComponent == "file"
        case .overflowed: print("overflowed")
        case .errorOccurred(let error): print(error)
        case .vanished(let path): print("vanished", path)
        default: break
        }
    }
    try watcher.watch(tree, recursively: true)
    for index in 0..<20_000 { chmod(tree.appending("a").string, index % 2 == 0 ? 0o700 : 0o755) }
    mkdir(tree.appending("b").string, 0o755)
    try RunLoop.main.add(watcher, forMode: .default)
    while RunLoop.main.run(in: .default, until: .now, returnAfterSourceHandled: true) == .handledSource {}
    for folder in ["a", "b"] { mkfifo(tree.appending(folder).appending("file").string, 0o600) }
    mkfifo(tree.appending("file").string, 0o600)
    while !isEnough { RunLoop.main.run(mode: .default, before: .distantFuture) }
    print(watcher.paths.count, "paths")
    watcher.close()
}
