package import CReactorTestSupport
import Glibc
import Synchronization
import SystemPackage
import Testing

/// A child process.
package final class Child {
    /// The child's standard input or output.
    package enum End {
        /// A pipe to or from the test.
        case pipe
        case path(String)
        case closed
    }

    /// The exit status of a process, or the signal that killed it.
    package enum Ending: Equatable {
        case exit(Int32)
        case signal(Int32)
    }

    package let identifier: pid_t
    /// The write end of the child's standard input; -1 if that is not a pipe, or after it is closed.
    private var input: CInt = -1
    private let output: CInt
    private let errors: CInt
    private var isOutputOpen = true
    /// How it has ended, once that has been waited for: its number may be another process's then.
    private var ending: Ending?

    /// Starts `program`: an absolute path, or the name of an executable that the package builds.
    package init(
        _ program: String, _ arguments: [String], input: End = .path("/dev/null"), output: End = .pipe,
        errors: End = .pipe
    ) throws {
        let (outputPipe, errorPipe, inputPipe) = (try Pipe(), try Pipe(), try Pipe())
        var actions = SpawnActions()
        actions.connect(STDIN_FILENO, to: input, inputPipe.readEnd, O_RDONLY)
        actions.connect(STDOUT_FILENO, to: output, outputPipe.writeEnd, O_WRONLY)
        actions.connect(STDERR_FILENO, to: errors, errorPipe.writeEnd, O_WRONLY)
        identifier = try actions.spawn(
            program.hasPrefix("/") ? program : Self.folder + "/" + program, [program] + arguments)
        for end in [inputPipe.readEnd, outputPipe.writeEnd, errorPipe.writeEnd] { close(end) }
        // A write must not wait forever for a child that does not read.
        _ = fcntl(inputPipe.writeEnd, F_SETFL, O_NONBLOCK)
        if case .pipe = input { self.input = inputPipe.writeEnd } else { close(inputPipe.writeEnd) }
        (self.output, self.errors) = (outputPipe.readEnd, errorPipe.readEnd)
    }

    deinit {
        closeInput()
        closeOutput()
        close(errors)
    }

    package func write(_ text: String) { write(Array(text.utf8)) }

    package func write(_ bytes: [UInt8]) {
        var rest = bytes[...]
        while !rest.isEmpty, Self.isReady(input, POLLOUT) {
            let count = rest.withUnsafeBytes { Glibc.write(input, $0.baseAddress, $0.count) }
            guard count > 0 || errno == EAGAIN else { break }
            rest = rest.dropFirst(max(0, count))
        }
        if !rest.isEmpty { Issue.record("The child has not read \(rest.count) bytes of its standard input.") }
    }

    package func closeInput() {
        if input >= 0 { close(input) }
        input = -1
    }

    package func closeOutput() {
        if isOutputOpen { close(output) }
        isOutputOpen = false
    }

    /// Reads standard output up to `lineCount` lines, or to its end.
    package func readOutput(lines lineCount: Int) -> String {
        var lines = 0
        return Self.text(of: output) { byte in
            if byte == UInt8(ascii: "\n") { lines += 1 }
            return lines == lineCount
        }
    }

    /// Reads `count` bytes of standard output, or fewer if it ends first.
    package func readOutput(bytes count: Int) -> String {
        var rest = count
        return Self.text(of: output) { _ in
            rest -= 1
            return rest == 0
        }
    }

    /// Reads standard output to its end.
    package func readOutput() -> String { Self.text(of: output) }

    /// Reads a line of standard output; nil at its end.
    package func readLine() -> String? { Self.line(of: output) }

    /// Reads standard error to its end. The child must not write more than the pipe's capacity before that.
    package func readErrors() -> String { Self.text(of: errors) }

    /// Waits until the pipe of the child's standard output is full.
    package func waitUntilOutputIsFull() {
        let writeEnd = open("/proc/self/fd/\(output)", O_WRONLY | O_CLOEXEC)
        precondition(writeEnd >= 0, "the child's standard output is not a pipe")
        defer { close(writeEnd) }
        var state = pollfd(fd: writeEnd, events: Int16(POLLOUT), revents: 0)
        waitUntil { poll(&state, 1, 0) == 0 }
    }

    private static func line(of descriptor: CInt) -> String? {
        let line = text(of: descriptor) { $0 == UInt8(ascii: "\n") }
        return line.isEmpty ? nil : String(line.prefix { $0 != "\n" })
    }

    /// Reads a pipe to the first byte for which `isLast` returns true, and no more.
    private static func text(of pipe: CInt, until isLast: (UInt8) -> Bool) -> String {
        var bytes: [UInt8] = []
        while let byte = read(pipe, upTo: 1).first {
            bytes.append(byte)
            if isLast(byte) { break }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Reads a pipe to its end.
    private static func text(of pipe: CInt) -> String {
        var bytes: [UInt8] = []
        while case let piece = read(pipe, upTo: 65_536), !piece.isEmpty { bytes += piece }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Waits for the next bytes of a pipe. None at the end, and, with an issue, if they do not come.
    private static func read(_ pipe: CInt, upTo size: Int) -> [UInt8] {
        guard isReady(pipe, POLLIN) else {
            Issue.record("The child has neither written nor ended after \(Patience.seconds) s.")
            return []
        }
        return [UInt8](unsafeUninitializedCapacity: size) { buffer, count in
            count = max(0, Glibc.read(pipe, buffer.baseAddress, size))
        }
    }

    private static func isReady(_ pipe: CInt, _ event: CInt) -> Bool {
        var state = pollfd(fd: pipe, events: Int16(event), revents: 0)
        return poll(&state, 1, CInt(Patience.seconds * 1000)) > 0
    }

    package func send(_ signal: CInt) { if ending == nil { kill(identifier, signal) } }

    /// Waits until the process has ended. Kills it if that takes too long.
    @discardableResult
    package func wait() -> Ending {
        if let ending { return ending }
        var status: CInt = 0
        if !becomesTrue({ waitpid(identifier, &status, WNOHANG) != 0 }) {
            Issue.record("The child \(identifier) has not ended after \(Patience.seconds) s.")
            send(SIGKILL)
            waitpid(identifier, &status, 0)
        }
        let ending = status & 0x7F == 0 ? Ending.exit(status >> 8 & 0xFF) : .signal(status & 0x7F)
        self.ending = ending
        return ending
    }

    /// Whether the process has ended. Does not reap it.
    package var hasEnded: Bool {
        var information = siginfo_t()
        let options = WEXITED | WNOHANG | WNOWAIT
        return waitid(P_PID, id_t(identifier), &information, options) == 0 && information.si_signo == SIGCHLD
    }

    /// The directory of this program, which has the other executables of the package too.
    package static let folder: String = {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = buffer.withUnsafeMutableBytes { readlink("/proc/self/exe", $0.baseAddress!, $0.count) }
        let program = FilePath(String(decoding: buffer.prefix(max(0, count)), as: UTF8.self))
        return program.removingLastComponent().string
    }()
}

/// A pipe whose ends are closed in child processes, unless they are connected explicitly. If another child inherited
/// the write end, the reader would not reach the end when the writer closes it.
struct Pipe {
    let readEnd: CInt
    let writeEnd: CInt

    /// Locked from pipe(2) to fcntl(2), so that no child is spawned between them.
    static let lock = Mutex(())

    init() throws(Errno) {
        let ends = try Self.lock.withLock { _ throws(Errno) in
            var ends: [CInt] = [0, 0]
            guard pipe(&ends) == 0 else { throw Errno(rawValue: errno) }
            for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            return ends
        }
        (readEnd, writeEnd) = (ends[0], ends[1])
    }
}

/// The file actions of posix_spawn(3).
struct SpawnActions: ~Copyable {
    private var actions = posix_spawn_file_actions_t()
    /// The child has no descriptors from here on: a server would keep the test's pipes open as long as it runs.
    private var firstClosed: CInt = 3

    init() { posix_spawn_file_actions_init(&actions) }

    deinit {
        var actions = actions
        posix_spawn_file_actions_destroy(&actions)
    }

    mutating func connect(_ number: CInt, to end: Child.End, _ pipeEnd: CInt, _ flags: CInt) {
        firstClosed = max(firstClosed, number + 1)
        switch end {
        case .pipe: posix_spawn_file_actions_adddup2(&actions, pipeEnd, number)
        case .path(let path): posix_spawn_file_actions_addopen(&actions, number, path, flags, 0)
        case .closed: posix_spawn_file_actions_addclose(&actions, number)
        }
    }

    /// Starts a process with the default signal actions and no blocked signals.
    mutating func spawn(_ path: String, _ arguments: [String]) throws(Errno) -> pid_t {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var (all, none) = (sigset_t(), sigset_t())
        sigfillset(&all)
        sigemptyset(&none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))

        // In the child: other threads open descriptors at this moment.
        reactor_test_close_from(&actions, firstClosed)
        let words = arguments.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        var identifier = pid_t()
        let code = Pipe.lock.withLock { _ in
            posix_spawn(&identifier, path, &actions, &attributes, words, environ)
        }
        guard code == 0 else { throw Errno(rawValue: code) }
        return identifier
    }
}
