import Glibc
import Outcome
import Reactor
import SystemPackage

/// A child prints a line, sends a signal to this process, and exits with 3.
@MainActor func waitForChild() async throws -> String {
    signal(SIGUSR1, SIG_IGN)  // an error may end the source before the child's signal arrives
    let signals = try RunLoop.main.signals([.userDefinedOne])
    let script = "echo hello; kill -USR1 $PPID; exit 3"
    let child = try ChildProcess.spawn(.init("/bin/sh", ["-c", script], standardOutput: .stream))
    var lines: [String] = []
    for try await line in child.standardOutput!.lines { lines.append(line) }
    let termination = try await RunLoop.main.termination(of: child.process)
    if termination.reason != .exited(status: 3) { throw Failure(reason: termination.reason) }
    if lines != ["hello"] { fail("\(lines)") }
    for try await _ in signals { break }
    return "3"
}

/// The child has ended otherwise, or the library does not know how.
private struct Failure: Error {
    var reason: ChildProcess.Termination.Reason
}

/// Ten lines that are appended to a file, one after the other, seen by a watcher.
@MainActor func followFile() async throws -> String {
    let path = FilePath("/tmp/hostile-\(getpid())")
    defer { unlink(path.string) }
    let output = OutputStream(path: path)
    try await output.writeAll("")
    let events = try RunLoop.main.fileEvents(at: [path])
    try await output.writeAll("0\n")
    try await output.flush()
    var count = 1
    for try await event in events {
        if case .errorOccurred(let error) = event { throw error }
        let lines = try await lines(of: path)
        if lines.count < count { continue }  // an earlier event
        if lines != (0..<count).map(String.init) { fail("\(lines), not \(count) lines") }
        if count == 10 { break }
        try await output.writeAll("\(count)\n")
        try await output.flush()  // until then an error may be kept for the next call
        count += 1
    }
    return "10"
}

@MainActor private func lines(of path: FilePath) async throws -> [String] {
    var lines: [String] = []
    for try await line in InputStream(path: path).lines { lines.append(line) }
    return lines
}

/// A thread posts a thousand blocks to the main loop, which runs each once and in order.
@MainActor func post() throws {
    let thread = try RunLoopThread(name: "posting")
    thread.runLoop.perform(inModes: [.default]) {
        for number in 0..<1000 { RunLoop.main.perform { MainActor.assumeIsolated { take(number) } } }
    }
    postingThread = thread
}

@MainActor private var next = 0
@MainActor private var postingThread: RunLoopThread?

@MainActor private func take(_ number: Int) {
    if number != next { fail("block \(number) in place of \(next)") }
    next += 1
    if next == 1000 { finish("1000") }
}
