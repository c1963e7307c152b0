package import Glibc
import SystemPackage

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
        let written = bytes.withUnsafeBytes { try? FileDescriptor(rawValue: input).writeAll($0) }
        precondition(written == bytes.count, "cannot write all bytes to the child's standard input")
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
    package func readOutput(lines lineCount: Int = .max) -> String {
        if lineCount == .max { return readAll() }
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        var lines = 0
        while lines < lineCount, Glibc.read(output, &byte, 1) == 1 {
            bytes.append(byte)
            if byte == UInt8(ascii: "\n") { lines += 1 }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private func readAll() -> String {
        var bytes: [UInt8] = []
        var block = [UInt8](repeating: 0, count: 65_536)
        while case let count = Glibc.read(output, &block, block.count), count > 0 { bytes += block[..<count] }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Reads `count` bytes of standard output, or fewer if it ends first.
    package func readOutput(bytes count: Int) -> String {
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        while bytes.count < count, Glibc.read(output, &byte, 1) == 1 { bytes.append(byte) }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Waits until the pipe of the child's standard output is full.
    package func waitUntilOutputIsFull() {
        let writeEnd = open("/proc/self/fd/\(output)", O_WRONLY | O_CLOEXEC)
        precondition(writeEnd >= 0, "the child's standard output is not a pipe")
        defer { close(writeEnd) }
        var state = pollfd(fd: writeEnd, events: Int16(POLLOUT), revents: 0)
        while poll(&state, 1, 0) > 0 { sched_yield() }
    }

    /// Reads a line of standard output; nil at its end.
    package func readLine() -> String? {
        let line = readOutput(lines: 1)
        return line.isEmpty ? nil : String(line.prefix { $0 != "\n" })
    }

    /// Reads a line of standard error; nil at its end.
    package func readErrorLine() -> String? {
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        while Glibc.read(errors, &byte, 1) == 1 {
            if byte == UInt8(ascii: "\n") { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
        return nil
    }

    /// Reads standard error to its end. The child must not write more than the pipe's capacity before that.
    package func readErrors() -> String {
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        while Glibc.read(errors, &byte, 1) == 1 { bytes.append(byte) }
        return String(decoding: bytes, as: UTF8.self)
    }

    package func send(_ signal: CInt) { kill(identifier, signal) }

    /// Waits until the process has ended.
    package func wait() -> Ending {
        var status: CInt = 0
        while waitpid(identifier, &status, 0) == -1, errno == EINTR {}
        return ending(status)
    }

    /// Whether the process has ended. Does not reap it.
    package var hasEnded: Bool {
        var information = siginfo_t()
        let options = WEXITED | WNOHANG | WNOWAIT
        return waitid(P_PID, id_t(identifier), &information, options) == 0 && information.si_signo == SIGCHLD
    }

    private func ending(_ status: CInt) -> Ending {
        status & 0x7F == 0 ? .exit(status >> 8 & 0xFF) : .signal(status & 0x7F)
    }

    /// The directory of this program, which has the other executables of the package too.
    package static let folder: String = {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = buffer.withUnsafeMutableBytes { readlink("/proc/self/exe", $0.baseAddress!, $0.count) }
        let program = FilePath(String(decoding: buffer.prefix(max(0, count)), as: UTF8.self))
        return program.removingLastComponent().string
    }()
}
