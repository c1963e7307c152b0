import CReactorTestSupport
import Glibc
import Reactor
import SystemPackage

/// Watches folders where the user may have two watches of inotify(7) only: in a user namespace of its own.
@MainActor func fewWatches() throws {
    let tree = FilePath(CommandLine.arguments[1])
    // Before the process has a second thread.
    guard unshare(CLONE_NEWUSER) == 0 else { return print("unshare: \(Errno(rawValue: errno))") }
    let limit = try FileDescriptor.open("/proc/sys/user/max_inotify_watches", .writeOnly)
    try limit.closeAfter { _ = try limit.writeAll("2".utf8) }
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
