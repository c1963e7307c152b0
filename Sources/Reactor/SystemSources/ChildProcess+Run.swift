import SystemPackage

extension ChildProcess {
    /// What a program has written, and how it has ended.
    public struct CollectedResult: Sendable, Hashable {
        /// How it has ended.
        public let termination: Termination
        /// What it has written to its standard output, if that is a stream.
        public let standardOutput: [UInt8]
        /// What it has written to its standard error, if that is a stream.
        public let standardError: [UInt8]
    }

    /// A program that has been ended before its time, by ``ChildProcess/run(_:_:input:outputLimit:timeout:)``.
    public struct RunError: Error, Sendable, Hashable {
        /// Why a program has been ended.
        @nonexhaustive public enum Reason: Error, Sendable, Hashable {
            /// It has written more than so many bytes.
            case outputLimitExceeded(Int)
            /// It has not ended in this time.
            case timedOut(Duration)
        }

        /// Why the program has been ended.
        public let reason: Reason
        /// The program.
        public let executable: String
        /// What was read before that, and how the program has ended.
        public let result: CollectedResult
    }

    /// The most bytes of each output, unless the caller says otherwise.
    public static let defaultOutputLimit = 1 << 20

    /// How long a program that is being ended may clean up.
    private static let grace = Duration.seconds(2)

    /// Runs a program to its end, and returns what it has written.
    ///
    /// ```swift
    /// let result = try await ChildProcess.run("git", ["status", "--short"])
    /// if result.termination.isSuccess { print(String(decoding: result.standardOutput, as: UTF8.self)) }
    /// ```
    ///
    /// The program has a process group of its own, reads `input` and then its end, or `/dev/null`, and may read and write in
    /// any order. It need not read all of its input. This returns when the program has ended and no process has its outputs
    /// open any more: a program that it leaves in the background with them is waited for.
    ///
    /// If the limit or the timeout is exceeded, or the task is cancelled, the group gets SIGTERM; SIGKILL follows when the
    /// program has ended, at the latest after two seconds. This throws after that.
    ///
    /// - Parameters:
    ///   - executable: A path if it contains a slash, otherwise a name that is looked up in `PATH`.
    ///   - arguments: The arguments after the program's name.
    ///   - input: What the program reads.
    ///   - outputLimit: The most bytes of its output, and of its errors.
    ///   - timeout: How long the program may take; nil for no limit.
    /// - Returns: What it has written, and how it has ended. Another status than 0 is no error.
    /// - Throws: ``RunError`` if the limit or the timeout was exceeded; ``IOError`` as ``spawn(_:)``, or if reading or writing
    ///   fails; `CancellationError`.
    /// - Precondition: `outputLimit` is not negative.
    nonisolated(nonsending) public static func run(
        _ executable: String, _ arguments: [String] = [], input: [UInt8] = [],
        outputLimit: Int = defaultOutputLimit, timeout: Duration? = nil
    ) async throws -> CollectedResult {
        let configuration = Configuration(
            executable, arguments, standardInput: .null, standardOutput: .stream, standardError: .stream,
            group: .new)
        return try await run(configuration, input: input, outputLimit: outputLimit, timeout: timeout)
    }

    /// Runs a program to its end, and returns what it has written to streams; otherwise as
    /// ``run(_:_:input:outputLimit:timeout:)``.
    ///
    /// - Parameters:
    ///   - configuration: The program. If it leads no process group, only itself is ended, not what it has started.
    ///   - input: What the program reads; if there are no bytes, what the configuration says.
    ///   - outputLimit: The most bytes of its output, and of its errors.
    ///   - timeout: How long the program may take; nil for no limit.
    nonisolated(nonsending) public static func run(
        _ configuration: Configuration, input: [UInt8] = [], outputLimit: Int = defaultOutputLimit,
        timeout: Duration? = nil
    ) async throws -> CollectedResult {
        require(outputLimit >= 0, "An output limit must not be negative: \(outputLimit).")
        try Task.checkCancellation()
        var configuration = configuration
        if !input.isEmpty { configuration.standardInput = .stream }
        let executable = configuration.executable
        let loop = try attempt(.spawn, executable) { () throws(Errno) in
            try ResidentThread.streams.runLoop()
        }
        let run = ProgramRun(try start(configuration), loop, isGroup: configuration.leadsGroup)
        defer { run.process.endUsingNumber() }
        do {
            let termination = try await run.finish(input: input, outputLimit: outputLimit, timeout: timeout)
            return run.result(termination)
        } catch {
            // Not cancelled with this task.
            let termination = try await Task { try await run.end(grace: grace) }.value
            guard let reason = error as? RunError.Reason else { throw error }
            throw RunError(reason: reason, executable: executable, result: run.result(termination))
        }
    }
}

extension ChildProcess.Configuration {
    fileprivate var leadsGroup: Bool { group == .new || group == .newSession || terminal != nil }
}

extension ChildProcess.RunError: CustomStringConvertible {
    /// A line such as `run git: has written more than 1048576 bytes`.
    public var description: String { "run \(executable): \(reason)" }
}

extension ChildProcess.RunError.Reason: CustomStringConvertible {
    /// A phrase such as `has not ended in 5.0 seconds`.
    public var description: String {
        switch self {
        case .outputLimitExceeded(let limit): "has written more than \(limit) bytes"
        case .timedOut(let timeout): "has not ended in \(timeout)"
        }
    }
}

/// What a program writes to one of its streams.
private final class CollectedOutput: Sendable {
    private let end: SharedDescriptor?
    private let collected = Mutex<[UInt8]>([])

    init(_ end: SharedDescriptor?) { self.end = end }

    var bytes: [UInt8] { collected.withLock { $0 } }

    /// Reads it to its end. Then, or when there is more, closes it: writing fails from then on.
    func read(of process: ChildProcess, onTerminal: Bool, upTo limit: Int) async throws {
        guard let end else { return }
        let stream = InputStream(StreamEngine(reading: end, of: process, onTerminal: onTerminal))
        defer { stream.close() }
        for try await chunk in stream.chunks() {
            let isMore = collected.withLock { bytes in
                let room = limit - bytes.count
                bytes += chunk.prefix(room)
                return chunk.count > room
            }
            if isMore { throw ChildProcess.RunError.Reason.outputLimitExceeded(limit) }
        }
    }
}

/// A program that runs while tasks read what it writes.
private final class ProgramRun: Sendable {
    private enum Step {
        case inputWritten, outputEnded
        case ended(ChildProcess.Termination)
    }

    let process: ChildProcess
    private let ends: ParentEnds
    private let loop: RunLoop
    private let isGroup: Bool
    private let (output, error): (CollectedOutput, CollectedOutput)

    init(_ started: (ChildProcess, ParentEnds), _ loop: RunLoop, isGroup: Bool) {
        (process, ends) = started
        (self.loop, self.isGroup) = (loop, isGroup)
        (output, error) = (CollectedOutput(ends.output), CollectedOutput(ends.error))
        // Signals reach the group also after the process has ended.
        process.beginUsingNumber()
    }

    func result(_ termination: ChildProcess.Termination) -> ChildProcess.CollectedResult {
        .init(termination: termination, standardOutput: output.bytes, standardError: error.bytes)
    }

    /// Waits until the process and its outputs have ended.
    ///
    /// - Throws: The reason to end it.
    func finish(
        input: [UInt8], outputLimit: Int, timeout: Duration?
    ) async throws -> ChildProcess.Termination {
        try await withThrowingTaskGroup(of: Step.self) { group in
            defer { group.cancelAll() }
            group.addTask { try await self.write(input) }
            group.addTask { .ended(try await self.loop.termination(of: self.process)) }
            for output in [output, error] {
                group.addTask {
                    let isTerminal = self.ends.master != nil
                    try await output.read(of: self.process, onTerminal: isTerminal, upTo: outputLimit)
                    return .outputEnded
                }
            }
            if let timeout { group.addTask { try await self.expire(after: timeout) } }
            var (outputs, termination) = (2, ChildProcess.Termination?.none)
            while let step = try await group.next() {
                switch step {
                case .inputWritten: continue
                case .outputEnded: outputs -= 1
                case .ended(let end): termination = end
                }
                if outputs == 0, let termination { return termination }
            }
            throw CancellationError()
        }
    }

    private func expire(after timeout: Duration) async throws -> Step {
        try await loop.clock().sleep(for: timeout)
        throw ChildProcess.RunError.Reason.timedOut(timeout)
    }

    /// Writes the input, all of which the process need not read.
    private func write(_ bytes: [UInt8]) async throws -> Step {
        guard let end = ends.input else { return .inputWritten }
        let stream = OutputStream(StreamEngine(UnopenedBackend(writing: end), subject: process.subject))
        defer { stream.close() }
        do {
            try await stream.writeAll(bytes)
        } catch let error as IOError where error.errno == .brokenPipe {}
        return .inputWritten
    }

    /// Ends the process, and its group.
    func end(grace: Duration) async throws -> ChildProcess.Termination {
        send(.terminate)
        _ = try? await loop.termination(of: process, timeout: grace)
        send(.kill)
        return try await loop.termination(of: process)
    }

    private func send(_ signal: Signal) {
        if isGroup { try? process.sendToGroup(signal) } else { try? process.send(signal) }
    }
}
