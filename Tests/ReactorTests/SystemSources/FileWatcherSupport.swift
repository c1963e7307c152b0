import CReactorTestSupport
import Glibc
import Reactor
import ReactorTestSupport
import SystemPackage
import Testing

/// A folder that is removed with all that is in it; in memory, if there is a file system for that.
final class TemporaryTree: Sendable {
    let path: FilePath

    init() {
        let parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
        var template = Array("\(parent)/reactor-XXXXXX".utf8CString)
        precondition(mkdtemp(&template) != nil, "cannot create a temporary directory")
        path = FilePath(String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }

    deinit { _ = try? ChildProcess.spawn(.init("rm", ["-rf", path.string])).process.wait() }

    func callAsFunction(_ name: String) -> FilePath { path.pushing(FilePath(name)) }

    /// Makes folders, and FIFOs where a name has no slash at its end: making one is one event, while a file's last closing
    /// is delayed by a child process that inherits it.
    func make(_ names: String...) {
        for name in names {
            if name.hasSuffix("/") {
                mkdir(self(name).string, 0o755)
            } else {
                mkfifo(self(name).string, 0o600)
            }
        }
    }

    /// Appends to a file, in another process: a child that another test starts would hold the file open for a moment, and
    /// the kernel would tell later that it was closed.
    func write(_ name: String, _ text: String = "") throws {
        try #require(system("printf %s '\(text)' >> '\(self(name))'") == 0)
    }

    func move(_ old: String, _ new: String) { rename(self(old).string, self(new).string) }

    /// Moves something to another tree.
    func move(_ old: String, _ other: TemporaryTree, _ new: String) {
        rename(self(old).string, other(new).string)
    }

    func exchange(_ one: String, _ other: String) {
        renameat2(AT_FDCWD, self(one).string, AT_FDCWD, self(other).string, UInt32(RENAME_EXCHANGE))
    }

    func remove(_ names: String...) { for name in names { Glibc.remove(self(name).string) } }

    /// The paths of all that is in it, or in one of its folders.
    func all(in folder: String = "") -> [FilePath] { strings(in: self(folder).string).map { FilePath($0) } }

    private func strings(in folder: String) -> [String] {
        entries(of: folder).flatMap { name in
            let path = folder + "/" + name
            return [path] + (isFolder(path) ? strings(in: path) : [])
        }
    }
}

/// Whether there is a folder, which is not a symbolic link.
func isFolder(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
}

/// A watcher in the default mode, and what it has reported.
final class Watch {
    let tree = TemporaryTree()
    private(set) var watcher: FileWatcher!
    private(set) var events: [FileWatcher.Event] = []
    private let markers = TemporaryTree()

    init() throws {
        watcher = try FileWatcher { [unowned self] _, event in events.append(event) }
        try RunLoop.current.add(watcher, forMode: .default)
        markers.make("in/")
    }

    deinit { watcher.cancel() }

    /// Watches a path in the tree.
    func watch(_ name: String = "", recursively: Bool = false) throws {
        try watcher.watch(tree(name), recursively: recursively)
    }

    /// The events of all changes so far.
    func take() throws -> [FileWatcher.Event] {
        try watcher.watch(markers("in"))
        // It is reported last: what was moved away before is not missing for longer.
        let marker = markers("in/end")
        markers.make("in/end")
        markers.move("in/end", "out")
        run { events.contains(.removed(marker)) }
        watcher.unwatch(markers("in"))
        RunLoop.current.poll()
        defer { events = [] }
        return events.filter { $0 != .created(marker) && $0 != .removed(marker) }
    }

    /// Runs the loop until the watcher has this many paths and folders.
    func finish(paths: Int = 1, folders: Int) {
        run { "\(watcher!)" == "file watcher: \(paths) paths, \(folders) folders" }
    }

    /// Runs the loop until `condition` holds.
    func run(until condition: () -> Bool) {
        while !condition() { RunLoop.current.run(in: .default, until: .after(milliseconds: 1)) }
    }
}

/// What a client knows of a tree: the paths in it.
struct Replica {
    private(set) var paths: Set<FilePath>

    init(_ paths: some Sequence<FilePath> = []) { self.paths = Set(paths) }

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
            for var path in moved where path.removePrefix(old) {
                paths.insert(path.isEmpty ? new : new.pushing(path))
            }
        case .overflowed, .vanished, .errorOccurred: Issue.record("\(event)")
        case .modified, .closedAfterWriting, .attributesChanged: break
        }
    }

    private mutating func remove(_ path: FilePath) { paths.subtract(below(path)) }

    private func below(_ path: FilePath) -> Set<FilePath> { paths.filter { $0.starts(with: path) } }
}
