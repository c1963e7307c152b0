import CReactorTestSupport
import Glibc
import Reactor
import SystemPackage

/// Watches folders where the user may have two watches of inotify(7) only.
@MainActor func fewWatches() throws {
    try watchWithLimit(until: "b/file") { watcher, tree in
        try watcher.watch(tree.appending("a"), recursively: true)
        try watcher.watch(tree.appending("b"))
        do throws(IOError) { try watcher.watch(tree.appending("c")) } catch { printRefusal(error, tree) }
        print(watcher.paths.count, "paths")
        mkdir(tree.appending("a/new").string, 0o755)
        mkfifo(tree.appending("b/file").string, 0o600)
    }
}

/// Loses changes while the limit keeps the watcher from watching a new folder.
@MainActor func fewWatchesAfterOverflow() throws {
    try watchWithLimit(until: "file") { watcher, tree in
        RunLoop.main.remove(watcher, forMode: .default)
        try watcher.watch(tree, recursively: true)
        for index in 0..<20_000 { chmod(tree.appending("a").string, index % 2 == 0 ? 0o700 : 0o755) }
        mkdir(tree.appending("b").string, 0o755)
        try RunLoop.main.add(watcher, forMode: .default)
        while RunLoop.main.run(in: .default, until: .now, returnAfterSourceHandled: true) == .handledSource {}
        for file in ["a/file", "b/file", "file"] { mkfifo(tree.appending(file).string, 0o600) }
    }
}

/// Prints what a watcher reports of the folder that the first argument names, up to the file `end` that `body` makes there. The
/// user may have two watches: in a user namespace of its own, which needs a process with one thread.
@MainActor private func watchWithLimit(until end: FilePath, _ body: (FileWatcher, FilePath) throws -> Void)
    throws
{
    let tree = FilePath(CommandLine.arguments[1])
    guard unshare(CLONE_NEWUSER) == 0 else { return print("unshare: \(Errno(rawValue: errno))") }
    let limit = try FileDescriptor.open("/proc/sys/user/max_inotify_watches", .writeOnly)
    try limit.closeAfter { _ = try limit.writeAll("2".utf8) }
    var last: FilePath?
    let watcher = try FileWatcher { watcher, event in
        switch event {
        case .created(let path):
            last = path
            print("created", relative(path.string, tree))
        case .errorOccurred(let error): printRefusal(error, tree)
        case .overflowed, .vanished: print(event)
        default: break
        }
    }
    try RunLoop.main.add(watcher, forMode: .default)
    try body(watcher, tree)
    while last != tree.appending(end.components) { RunLoop.main.run(mode: .default, before: .distantFuture) }
    if watcher.paths.count == 2 {
        watcher.unwatch(tree.appending("b"))
        try watcher.watch(tree.appending("c"))
        print("again", terminator: " ")
    }
    print(watcher.paths.count, "paths")
    watcher.cancel()
}

private func printRefusal(_ error: IOError, _ tree: FilePath) {
    print(error.errno == .noSpace ? "refused" : "\(error.reason)", relative(error.subject, tree))
}

/// The part of `path` behind that of the tree.
private func relative(_ path: String, _ tree: FilePath) -> Substring { path.dropFirst(tree.string.count + 1) }
