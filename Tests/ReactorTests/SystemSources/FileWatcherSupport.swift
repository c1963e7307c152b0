import Glibc
import Reactor
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

    func makeFolder(_ name: String) { mkdir(self(name).string, 0o755) }

    /// Makes a FIFO, which is one event: a file's last closing is delayed by a child process that inherits it.
    func makeFIFO(_ name: String) { mkfifo(self(name).string, 0o600) }

    /// Appends to a file, in another process: a child that another test starts would hold the file open for a moment, and
    /// the kernel would tell later that it was closed.
    func write(_ name: String, _ text: String = "") throws {
        try #require(system("printf %s '\(text)' >> '\(self(name))'") == 0)
    }

    func move(_ old: String, _ new: String) { rename(self(old).string, self(new).string) }

    func remove(_ name: String) { Glibc.remove(self(name).string) }
}

/// A watcher in the default mode, and what it has reported.
final class Watch {
    let tree = TemporaryTree()
    private(set) var watcher: FileWatcher!
    private(set) var events: [FileWatcher.Event] = []

    init() throws {
        watcher = try FileWatcher { [unowned self] _, event in events.append(event) }
        try RunLoop.current.add(watcher, forMode: .default)
    }

    deinit { watcher.close() }

    /// The events so far. A file shows when the last has come.
    func take() throws -> [FileWatcher.Event] {
        let marker = TemporaryTree()
        try watcher.watch(marker.path)
        try marker.write("end")
        run { events.contains(.created(marker("end"))) }
        // What was moved away is reported a little later.
        let end = Deadline.now + .milliseconds(20)
        while Deadline.now < end { RunLoop.current.run(in: .default, until: end) }
        watcher.unwatch(marker.path)
        RunLoop.current.poll()
        defer { events = [] }
        return events.filter { !"\($0)".contains(marker.path.string) }
    }

    /// Runs the loop until the watcher describes itself so.
    func finish(_ description: String) {
        let end = Deadline.now + .seconds(60)
        while "\(watcher!)" != "file watcher: \(description)", Deadline.now < end { RunLoop.current.poll() }
        #expect("\(watcher!)" == "file watcher: \(description)")
    }

    /// Runs the loop until `condition` holds.
    func run(until condition: () -> Bool) {
        while !condition() { RunLoop.current.run(mode: .default, before: .minutesAway) }
    }
}
