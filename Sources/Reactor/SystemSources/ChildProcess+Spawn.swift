import CReactorLinux
import Glibc
import SystemPackage

extension ChildProcess {
    /// A process that has been spawned, with its streams, which are neither opened nor scheduled yet.
    public struct Spawned {
        /// The process.
        public let process: ChildProcess
        /// Writes to the child's standard input, if that is a stream. Closing it ends the child's input; that
        /// of a terminal ends with the byte 4 (Control-D).
        public let standardInput: OutputStream?
        /// Reads the child's standard output, if that is a stream. It ends when the child, and each process
        /// that has got the pipe from it, has closed it.
        public let standardOutput: InputStream?
        /// Reads the child's standard error, if that is a stream, and not a terminal.
        public let standardError: InputStream?
    }

    /// Runs a program in a new process, and returns as soon as it runs.
    ///
    /// The child has no signal blocked or ignored, whatever this process has, and no descriptors but the
    /// standard ones and ``Configuration/descriptors``. Any thread may call this; it waits while the kernel
    /// loads the program.
    ///
    /// - Returns: The process and its streams.
    /// - Throws: ``IOError`` that names the program, or the file that could not be opened for it:
    ///   `Errno.noSuchFileOrDirectory`, `Errno.permissionDenied` or another error of execve(2); that of
    ///   chdir(2); `Errno.resourceTemporarilyUnavailable` if the user may have no more processes;
    ///   `Errno.tooManyOpenFiles`; `Errno.invalidArgument` for a string that contains a zero byte, or a
    ///   variable's name with an equals sign.
    public static func spawn(_ configuration: Configuration) throws(IOError) -> sending Spawned {
        let request = try SpawnRequest(configuration)
        let ends = try ChildEnds(configuration)
        let spawned = try request.start(ends)
        let name = FilePath(configuration.executable).lastComponent?.string ?? configuration.executable
        let process = ChildProcess(spawned, name, terminal: ends.master)
        let subject = "process \(process.processIdentifier) (\(name))"
        func reader(_ end: SharedDescriptor) -> InputStream {
            let file = UnopenedFile(reading: end, endsAtHangUp: ends.master != nil)
            let engine = StreamEngine(file, subject: subject)
            if LoopDiagnostics.isReporting, ends.master == nil { engine.watchChildOutput(end) }
            return InputStream(engine)
        }
        return Spawned(
            process: process,
            standardInput: ends.input.map {
                OutputStream(StreamEngine(UnopenedFile(writing: $0), subject: subject))
            },
            standardOutput: ends.output.map(reader), standardError: ends.error.map(reader))
    }
}

// MARK: - Descriptors

/// The descriptors of a child that is being spawned: those that it gets, and the parent's ends of them.
private struct ChildEnds {
    /// What the child gets, by its numbers.
    private(set) var passed: [CInt: SharedDescriptor] = [:]
    private(set) var input: SharedDescriptor?
    private(set) var output: SharedDescriptor?
    private(set) var error: SharedDescriptor?
    private(set) var master: SharedDescriptor?
    /// What the child opens as its controlling terminal.
    private(set) var terminal: SharedDescriptor?

    init(_ configuration: ChildProcess.Configuration) throws(IOError) {
        try attempt(.spawn, configuration.executable) { () throws(Errno) in
            if let size = configuration.terminal { try openTerminal(size) }
        }
        for (number, descriptor) in configuration.descriptors { pass(descriptor, as: number) }
        input = try connect(STDIN_FILENO, configuration.standardInput) ?? input
        output = try connect(STDOUT_FILENO, configuration.standardOutput) ?? output
        if case .standardOutput = configuration.standardError {
            // Copied in the child from what its standard output has become here.
            passed[STDERR_FILENO] =
                passed[STDOUT_FILENO] ?? SharedDescriptor(STDOUT_FILENO, closesWhenDone: false)
        } else {
            error = try connect(STDERR_FILENO, configuration.standardError.output)
        }
    }

    private mutating func pass(_ descriptor: FileDescriptor, as number: CInt) {
        passed[number] = SharedDescriptor(descriptor.rawValue, closesWhenDone: false)
    }

    private mutating func openTerminal(_ size: ChildProcess.TerminalSize) throws(Errno) {
        let master = try Self.owned {
            unsafe Glibc.open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
        }
        let number = master.number
        try SystemCall.make { reactor_terminal_unlock(number) }
        try SystemCall.make { reactor_terminal_resize(number, size.rows, size.columns) }
        let terminal = try Self.owned { reactor_terminal_open(number) }
        for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] { passed[number] = terminal }
        (self.master, self.terminal, output) = (master, terminal, master)
        input = try Self.owned { fcntl(number, F_DUPFD_CLOEXEC, 0) }
    }

    /// Opens what the child reads, and returns the parent's end of a pipe.
    private mutating func connect(
        _ number: CInt, _ input: ChildProcess.Configuration.Input
    ) throws(IOError) -> SharedDescriptor? {
        switch input {
        case .inherited: break
        case .null: passed[number] = try Self.open("/dev/null", O_RDONLY)
        case .file(let path): passed[number] = try Self.open(path, O_RDONLY)
        case .descriptor(let descriptor): pass(descriptor, as: number)
        case .stream where terminal != nil: break
        case .stream:
            let pipe = try Self.pipe()
            passed[number] = pipe.read
            return pipe.write
        }
        return nil
    }

    /// Opens what the child writes, and returns the parent's end of a pipe.
    private mutating func connect(
        _ number: CInt, _ output: ChildProcess.Configuration.Output
    ) throws(IOError) -> SharedDescriptor? {
        switch output {
        case .inherited: break
        case .null: passed[number] = try Self.open("/dev/null", O_WRONLY)
        case .file(let path, let append):
            passed[number] = try Self.open(path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC))
        case .descriptor(let descriptor): pass(descriptor, as: number)
        case .stream where terminal != nil: break
        case .stream:
            let pipe = try Self.pipe()
            passed[number] = pipe.write
            return pipe.read
        }
        return nil
    }

    private static func open(_ path: FilePath, _ flags: CInt) throws(IOError) -> SharedDescriptor {
        let number = try attempt(.open, "\(path)") { () throws(Errno) in
            try SystemCall.make(path) { unsafe Glibc.open($0, flags | O_CLOEXEC | O_NOCTTY, 0o666) }
        }
        return SharedDescriptor(number, closesWhenDone: true)
    }

    private static func pipe() throws(IOError) -> (read: SharedDescriptor, write: SharedDescriptor) {
        var ends: [CInt] = [-1, -1]
        try attempt(.open, "a pipe") { () throws(Errno) in
            _ = try SystemCall.make { unsafe pipe2(&ends, O_CLOEXEC) }
        }
        return (
            SharedDescriptor(ends[0], closesWhenDone: true), SharedDescriptor(ends[1], closesWhenDone: true)
        )
    }

    private static func owned(_ open: () -> CInt) throws(Errno) -> SharedDescriptor {
        SharedDescriptor(try SystemCall.make(open), closesWhenDone: true)
    }
}

extension ChildProcess.Configuration.ErrorOutput {
    fileprivate var output: ChildProcess.Configuration.Output {
        switch self {
        case .inherited, .standardOutput: .inherited
        case .null: .null
        case .file(let path, let append): .file(path, append: append)
        case .descriptor(let descriptor): .descriptor(descriptor)
        case .stream: .stream
        }
    }
}

// MARK: - The request

/// A configuration in the kernel's form.
private struct SpawnRequest {
    private let configuration: ChildProcess.Configuration
    private var strings: [UInt8] = []
    private let paths: [[UInt8]]
    private let arguments: [[UInt8]]
    /// Nil for this process's.
    private let environment: [[UInt8]]?

    init(_ configuration: ChildProcess.Configuration) throws(IOError) {
        self.configuration = configuration
        let executable = configuration.executable
        arguments = ([configuration.argument0 ?? executable] + configuration.arguments).map { Array($0.utf8) }
        environment = configuration.environment.entries
        paths = Self.paths(of: Array(executable.utf8), environment ?? ProcessEnvironment.entries)
        let folder = configuration.workingDirectory.map { [$0.bytes] } ?? []
        for string in paths + arguments + (environment ?? []) + folder {
            strings += string
            strings.append(0)
        }
        let count = paths.count + arguments.count + (environment?.count ?? 0) + folder.count
        guard configuration.environment.isValid, strings.count(where: { $0 == 0 }) == count else {
            throw IOError(.spawn, executable, .invalidArgument)
        }
        if executable.isEmpty { throw IOError(.spawn, executable, .noSuchFileOrDirectory) }
    }

    /// The paths to try: that of the program, or one in each folder of the child's `PATH`.
    private static func paths(of executable: [UInt8], _ environment: [[UInt8]]) -> [[UInt8]] {
        let slash = UInt8(ascii: "/")
        if executable.contains(slash) { return [executable] }
        let name = Array("PATH=".utf8)
        let search =
            environment.first { $0.starts(with: name) }?.dropFirst(name.count)
            ?? Array("/usr/local/bin:/usr/bin:/bin".utf8)[...]
        return search.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
            .map { $0.isEmpty ? executable : $0 + [slash] + executable }
    }

    func start(_ ends: ChildEnds) throws(IOError) -> reactor_spawned {
        let descriptors = ends.passed.values.map(\.number) + ends.passed.keys
        let spawned = unsafe strings.withUnsafeBytes { strings in
            unsafe descriptors.withUnsafeBufferPointer { descriptors in
                var raw = unsafe request(ends)
                unsafe raw.strings = strings.baseAddress?.assumingMemoryBound(to: CChar.self)
                unsafe raw.descriptors = descriptors.baseAddress
                return unsafe reactor_spawn_start(&raw)
            }
        }
        withExtendedLifetime(ends) {}
        guard spawned.process < 0 else { return spawned }
        throw IOError(.spawn, subject(atStage: spawned.stage), Errno(rawValue: spawned.error))
    }

    /// Everything but the pointers.
    private func request(_ ends: ChildEnds) -> reactor_spawn {
        var raw = unsafe reactor_spawn()
        unsafe raw.path_count = paths.count
        unsafe raw.argument_count = arguments.count
        unsafe raw.environment_count = environment?.count ?? 0
        unsafe raw.inherits_environment = environment == nil
        unsafe raw.has_folder = configuration.workingDirectory != nil
        unsafe raw.is_session_leader = configuration.group == .newSession || ends.terminal != nil
        unsafe raw.group = configuration.group.raw
        unsafe raw.terminal = ends.terminal?.number ?? -1
        unsafe raw.death_signal = configuration.parentDeathSignal ?? 0
        unsafe raw.descriptor_count = ends.passed.count
        return unsafe raw
    }

    private func subject(atStage stage: CInt) -> String {
        let folder = configuration.workingDirectory
        guard stage == CInt(reactor_spawn_folder), let folder else { return configuration.executable }
        return "\(configuration.executable) in \(folder)"
    }
}

extension ChildProcess.Configuration.Group {
    /// The group to join; 0 for a new one, -1 for the parent's, and less for one that the kernel refuses.
    fileprivate var raw: CInt {
        switch self {
        case .inherited, .newSession: -1
        case .new: 0
        case .existing(let group): group > 0 ? group : .min
        }
    }
}

extension ChildProcess.Configuration.Environment {
    /// Whether each name can be one.
    fileprivate var isValid: Bool {
        func isName(_ name: String) -> Bool { !name.isEmpty && !name.utf8.contains(equalsSign) }
        return switch self {
        case .inherited: true
        case .custom(let variables): variables.keys.allSatisfy(isName)
        case .updated(let changes): changes.keys.allSatisfy(isName)
        }
    }

    /// The entries as execve(2) takes them; nil for those of this process as they are.
    fileprivate var entries: [[UInt8]]? {
        switch self {
        case .inherited: nil
        case .custom(let variables): variables.map { Self.entry($0, $1) }
        case .updated(let changes):
            ProcessEnvironment.entries(without: changes.keys)
                + changes.compactMap { name, value in value.map { Self.entry(name, $0) } }
        }
    }

    private static func entry(_ name: String, _ value: String) -> [UInt8] { Array("\(name)=\(value)".utf8) }
}

private let equalsSign = UInt8(ascii: "=")

/// The entries of this process's environment as they are (environ(7)), which need be neither text nor variables.
private enum ProcessEnvironment {
    static var entries: [[UInt8]] {
        var entries: [[UInt8]] = []
        // clearenv(3) sets it to NULL.
        guard unsafe UInt(bitPattern: environ) != 0 else { return [] }
        while let entry = unsafe environ[entries.count] {
            unsafe entries.append(Array(UnsafeRawBufferPointer(start: entry, count: strlen(entry))))
        }
        return entries
    }

    static func entries(without names: some Sequence<String>) -> [[UInt8]] {
        let names = Set(names.map { Array($0.utf8)[...] })
        return entries.filter { entry in
            entry.firstIndex(of: equalsSign).map { !names.contains(entry[..<$0]) } ?? true
        }
    }
}

extension FilePath {
    fileprivate var bytes: [UInt8] {
        unsafe withPlatformString { unsafe Array(UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
    }
}
