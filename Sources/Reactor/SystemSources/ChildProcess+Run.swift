public import SystemPackage

extension ChildProcess {
    /// The output of a program, and how it has ended.
    public struct CollectedResult: Sendable, Hashable {
        /// How it has ended.
        public let termination: Termination
        /// Its standard output, if that is a stream.
        public let standardOutput: [UInt8]
        /// Its standard error, if that is a stream.
        public let standardError: [UInt8]
    }

    /// A program that has been ended before its time, by ``ChildProcess/run(_:_:input:outputLimit:timeout:configure:)``.
    public struct RunError: ReactorError, Hashable {
        /// Why a program has been ended.
        @nonexhaustive public enum Reason: Sendable, Hashable {
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

        /// The program.
        public var subject: String { executable }
        /// `Errno.timedOut`, or nil.
        public var errno: Errno? { if case .timedOut = reason { .timedOut } else { nil } }
        /// A line such as `run git: has written more than 1048576 bytes`.
        public var description: String { "run \(executable): \(reason)" }
    }

    /// The maximum number of bytes of each output, unless the caller says otherwise.
    public static let defaultOutputLimit = 1 << 20

    /// How long a program that is being ended may clean up.
    fileprivate static let grace = Duration.seconds(2)

    /// Runs a program to its end, and returns what it has written.
    ///
    /// ```swift
    /// let result = try await ChildProcess.run("git", ["status", "--short"])
    /// if result.termination.isSuccess { print(String(decoding: result.standardOutput, as: UTF8.self)) }
    /// ```
    ///
    /// The program leads a process group of its own. Its standard input is `input` and then the end, or `/dev/null`; it need
    /// not read all of it, and may read and write in any order. This returns when the program has ended and all copies of its
    /// output pipes are closed, so a background process that keeps them open delays the return.
    ///
    /// If the limit or the timeout is exceeded, or the task is cancelled, the group gets SIGTERM; SIGKILL follows when the
    /// program has ended, at the latest after two seconds. This throws after that, with what was written up to the limit.
    ///
    /// - Parameters:
    ///   - executable: A path if it contains a slash, otherwise a name that is looked up in `PATH`.
    ///   - arguments: The arguments after the program's name.
    ///   - input: What the program reads.
    ///   - outputLimit: The maximum number of bytes of its output, and of its errors.
    ///   - timeout: How long the program may take; nil for no limit.
    ///   - configure: Changes the configuration before the program is started, such as its environment, or where it writes. If
    ///     it is not to lead a group, only itself is ended, not what it has started.
    /// - Returns: What it has written to streams, and how it has ended. Another status than 0 is no error.
    /// - Throws: ``RunError`` if the limit or the timeout was exceeded; ``IOError`` as ``spawn(_:)``, or if reading or writing
    ///   fails; `CancellationError`.
    /// - Precondition: `outputLimit` is not negative.
    nonisolated(nonsending) public static func run(
        _ executable: String, _ arguments: [String] = [], input: [UInt8] = [],
        outputLimit: Int = defaultOutputLimit, timeout: Duration? = nil,
        configure: (inout Configuration) -> Void = { _ in }
    ) async throws -> CollectedResult {
        require(outputLimit >= 0, "An output limit must not be negative: \(outputLimit).")
        try Task.checkCancellation()
        var configuration = Configuration(
            executable, arguments, standardInput: input.isEmpty ? .null : .stream, standardOutput: .stream,
            standardError: .stream, group: .new)
        configure(&configuration)
        let loop = try attempt(.spawn, executable) { () throws(Errno) in
            try ResidentThread.streams.runLoop()
        }
        let run = ProgramRun(try start(configuration), loop, isGroup: configuration.leadsGroup)
        defer { run.process.endUsingNumber() }
        // A task of its own, as what the program writes while it is ended is read, too.
        let task = Task { try await run.finish(input: input, outputLimit: outputLimit, timeout: timeout) }
        let (termination, fault) = try await withTaskCancellationHandler {
            try await task.value
        } onCancel: {
            run.end(because: CancellationError())
        }
        switch fault {
        case nil: return run.result(termination)
        case let limit as ExceededLimit:
            throw RunError(reason: limit.reason, executable: executable, result: run.result(termination))
        case let error?: throw error
        }
    }
}

/// Why a program is ended; ``ChildProcess/RunError`` adds what it has written.
private struct ExceededLimit: Error {
    let reason: ChildProcess.RunError.Reason
}

extension ChildProcess.Configuration {
    fileprivate var leadsGroup: Bool { group == .new || group == .newSession || terminal != nil }
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

/// The output of a program to one of its streams.
private final class CollectedOutput: Sendable {
    private let end: SharedDescriptor?
    private let collected = Mutex<[UInt8]>([])

    init(_ end: SharedDescriptor?) { self.end = end }

    var bytes: [UInt8] { collected.withLock { $0 } }

    /// Reads it to its end. Calls `exceeded` when there is more than `limit` bytes, and drops it.
    func read(of process: ChildProcess, onTerminal: Bool, upTo limit: Int, exceeded: () -> Void) async throws
    {
        guard let end else { return }
        let stream = InputStream(StreamEngine(reading: end, of: process, onTerminal: onTerminal))
        defer { stream.close() }
        for try await chunk in stream.chunks() {
            let isMore = collected.withLock { bytes in
                let room = limit - bytes.count
                bytes += chunk.prefix(room)
                return chunk.count > room
            }
            if isMore { exceeded() }
        }
    }
}

/// A program that runs while tasks read what it writes.
private final class ProgramRun: Sendable {
    private enum Step {
        case outputEnded
        case ended(ChildProcess.Termination)
        /// The process and its group have been killed.
        case killed
        case other
    }

    let process: ChildProcess
    private let ends: ParentEnds
    private let loop: RunLoop
    private let isGroup: Bool
    private let (output, error): (CollectedOutput, CollectedOutput)
    /// Why the program is ended early; nil if it was not.
    private let fault = AsyncPromise<(any Error)?>()

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

    /// Ends the program early.
    func end(because error: any Error) { fault.set(error) }

    /// Waits until the process and its outputs have ended. Returns how it has, and why it was ended early.
    func finish(
        input: [UInt8], outputLimit: Int, timeout: Duration?
    ) async throws -> (ChildProcess.Termination, (any Error)?) {
        try await withThrowingTaskGroup(of: Step.self) { group in
            group.addTask { try await self.write(input) }
            group.addTask { await self.waitForEnd() }
            for output in [output, error] { group.addTask { await self.read(output, upTo: outputLimit) } }
            if let timeout { group.addTask { try await self.expire(after: timeout) } }
            group.addTask { await self.endEarly() }
            defer {
                fault.set(nil)
                group.cancelAll()
            }
            return (try await result(of: &group), await fault.wait())
        }
    }

    private func result(of group: inout ThrowingTaskGroup<Step, any Error>) async throws
        -> ChildProcess.Termination
    {
        var (outputs, termination) = (2, ChildProcess.Termination?.none)
        while let step = try await group.next() {
            switch step {
            case .outputEnded: outputs -= 1
            case .ended(let end):
                termination = end
                // A program may close its terminal, as `cat` does at its end, or open it again: so the output ends only now.
                ends.slave?.close()
            // A process that has left the group may keep the outputs open.
            case .killed: (outputs, termination) = (0, termination ?? process.termination)
            case .other: continue
            }
            guard outputs <= 0, let termination else { continue }
            fault.set(nil)
            return termination
        }
        throw await fault.wait() ?? CancellationError()
    }

    private func waitForEnd() async -> Step {
        do { return .ended(try await loop.termination(of: process)) } catch {
            // The kernel refuses to watch it.
            end(because: error)
            return .other
        }
    }

    private func expire(after timeout: Duration) async throws -> Step {
        try await loop.clock().sleep(for: timeout)
        end(because: ExceededLimit(reason: .timedOut(timeout)))
        return .other
    }

    private func read(_ output: CollectedOutput, upTo limit: Int) async -> Step {
        do {
            try await output.read(of: process, onTerminal: ends.master != nil, upTo: limit) {
                end(because: ExceededLimit(reason: .outputLimitExceeded(limit)))
            }
        } catch {
            end(because: error)
        }
        return .outputEnded
    }

    /// Writes the input, all of which the process need not read, and its end.
    private func write(_ bytes: [UInt8]) async throws -> Step {
        guard let end = ends.input else { return .other }
        let stream = OutputStream(StreamEngine(UnopenedBackend(writing: end), subject: process.subject))
        defer { stream.close() }
        do {
            try await stream.writeAll(bytes)
            if ends.master != nil { try await stream.writeAll(Self.endOfInput(after: bytes)) }
        } catch let error as IOError where error.errno == .brokenPipe {
        } catch {
            self.end(because: error)
        }
        return .other
    }

    /// Control-D, which ends the input of a terminal at the beginning of a line, and a line elsewhere.
    private static func endOfInput(after bytes: [UInt8]) -> [UInt8] {
        bytes.last ?? 10 == 10 ? [4] : [4, 4]
    }

    /// Ends the process and its group when there is a fault, and allows them ``ChildProcess/grace``.
    private func endEarly() async -> Step {
        guard await fault.wait() != nil else { return .other }
        send(.terminate)
        _ = try? await loop.termination(of: process, timeout: ChildProcess.grace)
        send(.kill)
        _ = try? await loop.termination(of: process)
        try? await loop.clock().sleep(for: ChildProcess.grace)
        return .killed
    }

    private func send(_ signal: Signal) {
        try? process.send(signal, toGroup: isGroup)
    }
}
