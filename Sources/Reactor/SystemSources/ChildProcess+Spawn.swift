import CReactorLinux
import Glibc
import SystemPackage

extension ChildProcess {
    /// A process that has been spawned, with its streams, which are neither opened nor scheduled yet.
    public struct Spawned {
        /// The process.
        public let process: ChildProcess
        /// Writes to the child's standard input, if that is a stream. Closing it ends the child's input; byte 4 (Control-D)
        /// ends that of a terminal.
        public let standardInput: OutputStream?
        /// Reads the child's standard output, if that is a stream. Ends when the child and all processes that inherited the
        /// pipe have closed it. Closing that of a terminal, and ``standardInput``, sends SIGHUP to a child that has not ended.
        public let standardOutput: InputStream?
        /// Reads the child's standard error, if that is a stream, and not a terminal.
        public let standardError: InputStream?
    }

    /// Runs a program in a new process, and returns as soon as it runs.
    ///
    /// The child has no signal blocked or ignored, and no descriptors but the standard ones and
    /// ``Configuration/descriptors``. May be called from any thread; blocks while the kernel loads the program.
    ///
    /// - Returns: The process and its streams.
    /// - Throws: ``IOError`` that names the program, or the file that could not be opened for it: an error of execve(2) or
    ///   chdir(2); `Errno.resourceTemporarilyUnavailable` if the user may have no more processes; `Errno.tooManyOpenFiles`;
    ///   `Errno.invalidArgument` if a string contains a zero byte, a variable's name an equals sign, a socket's name a colon or
    ///   a control character, or if a socket's number is also in ``Configuration/descriptors``.
    public static func spawn(_ configuration: Configuration) throws(IOError) -> sending Spawned {
        let (process, ends) = try start(configuration)
        let subject = process.subject
        let reader = { InputStream(StreamEngine(reading: $0, of: process, onTerminal: ends.master != nil)) }
        return Spawned(
            process: process,
            standardInput: ends.input.map {
                OutputStream(
                    StreamEngine(UnopenedBackend(writing: $0, closesUnopened: true), subject: subject))
            },
            standardOutput: ends.output.map(reader), standardError: ends.error.map(reader))
    }

    /// Spawns a process, and returns it with this process's ends of its pipes or its terminal.
    static func start(_ configuration: Configuration) throws(IOError) -> (ChildProcess, ParentEnds) {
        let request = try SpawnRequest(configuration)
        let ends = try ChildEnds(configuration)
        let spawned = try request.start(ends)
        let name = FilePath(configuration.executable).lastComponent?.string ?? configuration.executable
        return (ChildProcess(spawned, name, terminal: ends.parents.master), ends.parents)
    }

    /// The subject of errors of its streams.
    var subject: String { "process \(processIdentifier) (\(name))" }
}

extension StreamEngine {
    /// Reads what `process` writes to `end`.
    convenience init(reading end: SharedDescriptor, of process: ChildProcess, onTerminal: Bool) {
        self.init(
            UnopenedBackend(reading: end, endsAtHangUp: onTerminal, closesUnopened: true),
            subject: process.subject)
        if LoopDiagnostics.isReporting, !onTerminal { superviseChildOutput(end) }
    }
}

// MARK: - Descriptors

/// The parent's ends of a child's pipes or its terminal.
struct ParentEnds: Sendable {
    fileprivate(set) var input: SharedDescriptor?
    fileprivate(set) var output: SharedDescriptor?
    fileprivate(set) var error: SharedDescriptor?
    /// Of the terminal, which `output` is, too.
    fileprivate(set) var master: SharedDescriptor?
    /// The other side of the terminal. While it is open the output does not end, though the child closes its copies.
    fileprivate(set) var slave: SharedDescriptor?
}

/// The descriptors of a child that is being spawned: those that it gets, and the parent's ends of them.
private struct ChildEnds {
    /// The child's descriptors, by their numbers.
    private(set) var passed: [CInt: SharedDescriptor] = [:]
    private(set) var parents = ParentEnds()
    /// What the child opens as its controlling terminal.
    private(set) var terminal: SharedDescriptor?
    /// The child's working directory; nil for this process's.
    private(set) var folder: SharedDescriptor?

    init(_ configuration: ChildProcess.Configuration) throws(IOError) {
        if let path = configuration.workingDirectory {
            folder = try attempt(.spawn, configuration.executable(in: path)) { () throws(Errno) in
                // As chdir(2), this needs no permission to read the folder.
                let number = try SystemCall.open(path, SystemCall.pathOnly | O_DIRECTORY)
                return SharedDescriptor(number, closesWhenDone: true)
            }
        }
        try attempt(.spawn, configuration.executable) { () throws(Errno) in
            if let size = configuration.terminal { try openTerminal(size) }
        }
        for (number, descriptor) in configuration.descriptors { pass(descriptor, as: number) }
        for (number, socket) in zip(ServiceManager.firstSocket..., configuration.sockets) {
            pass(socket.descriptor, as: number)
        }
        let input = try connect(STDIN_FILENO, configuration.standardInput)
        let output = try connect(STDOUT_FILENO, configuration.standardOutput)
        (parents.input, parents.output) = (input ?? parents.input, output ?? parents.output)
        if case .mergedWithStandardOutput = configuration.standardError {
            // Copied in the child from what its standard output has become here.
            passed[STDERR_FILENO] =
                passed[STDOUT_FILENO] ?? SharedDescriptor(STDOUT_FILENO, closesWhenDone: false)
        } else {
            parents.error = try connect(STDERR_FILENO, configuration.standardError)
        }
    }

    private mutating func pass(_ descriptor: FileDescriptor, as number: CInt) {
        passed[number] = SharedDescriptor(descriptor.rawValue, closesWhenDone: false)
    }

    private mutating func openTerminal(_ size: Terminal.Size) throws(Errno) {
        func owned(_ number: CInt) -> SharedDescriptor { SharedDescriptor(number, closesWhenDone: true) }
        let number = try SystemCall.open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK)
        let master = owned(number)
        try SystemCall.make { reactor_terminal_unlock(number) }
        try SystemCall.make { reactor_terminal_resize(number, size.rows, size.columns) }
        terminal = owned(try SystemCall.make { reactor_terminal_open(number) })
        for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] { passed[number] = terminal }
        let input = owned(try SystemCall.duplicate(number))
        parents = ParentEnds(input: input, output: master, master: master, slave: terminal)
    }

    /// Opens what the child has as `number`, and returns the parent's end of a pipe.
    private mutating func connect(
        _ number: CInt, _ channel: ChildProcess.Configuration.Redirection
    ) throws(IOError) -> SharedDescriptor? {
        let isRead = number == STDIN_FILENO
        switch channel {
        case .inherited: break
        case .null: passed[number] = try Self.open("/dev/null", O_RDWR)
        case .file(let path, let append):
            let creation = O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC)
            passed[number] = try Self.open(path, isRead ? O_RDONLY : creation)
        case .descriptor(let descriptor): pass(descriptor, as: number)
        case .mergedWithStandardOutput: break  // refused before
        case .stream where terminal != nil: break
        case .stream:
            let (reading, writing) = try Self.pipe()
            passed[number] = isRead ? reading : writing
            return isRead ? writing : reading
        }
        return nil
    }

    private static func open(_ path: FilePath, _ flags: CInt) throws(IOError) -> SharedDescriptor {
        try attempt(.open, "\(path)") { () throws(Errno) in
            SharedDescriptor(try SystemCall.open(path, flags | O_NOCTTY), closesWhenDone: true)
        }
    }

    private static func pipe() throws(IOError) -> (SharedDescriptor, SharedDescriptor) {
        var ends: [CInt] = [-1, -1]
        try attempt(.open, "a pipe") { () throws(Errno) in
            _ = try SystemCall.make { unsafe pipe2(&ends, O_CLOEXEC) }
        }
        return (
            SharedDescriptor(ends[0], closesWhenDone: true), SharedDescriptor(ends[1], closesWhenDone: true)
        )
    }
}

// MARK: - The request

/// A configuration in the kernel's form.
private struct SpawnRequest {
    private let configuration: ChildProcess.Configuration
    private var request = reactor_spawn()
    /// The paths to try, the arguments and the variables, each with a zero at its end.
    private var strings: [UInt8] = []

    init(_ configuration: ChildProcess.Configuration) throws(IOError) {
        self.configuration = configuration
        let executable = configuration.executable
        let variables = configuration.entries
        let paths = Self.paths(of: Array(executable.utf8), variables ?? processEnvironment)
        let arguments = [configuration.argument0 ?? executable] + configuration.arguments
        (request.path_count, request.argument_count) = (paths.count, arguments.count)
        (request.variable_count, request.inherits_environment) = (variables?.count ?? 0, variables == nil)
        let all = paths + arguments.map { Array($0.utf8) } + (variables ?? [])
        strings = Array(all.map { $0 + [0] }.joined())
        guard configuration.environment.isValid, configuration.hasValidSockets,
            strings.count(where: { $0 == 0 }) == all.count
        else {
            throw IOError(.spawn, executable, .invalidArgument)
        }
        for case .mergedWithStandardOutput in [configuration.standardInput, configuration.standardOutput] {
            throw IOError(.spawn, executable, .invalidArgument)
        }
        if executable.isEmpty { throw IOError(.spawn, executable, .noSuchFileOrDirectory) }
        request.names_process = !configuration.sockets.isEmpty
        request.death_signal = configuration.parentDeathSignal?.rawValue ?? 0
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
        var request = request
        request.descriptor_count = ends.passed.count
        (request.folder, request.terminal) = (ends.folder?.number ?? -1, ends.terminal?.number ?? -1)
        request.group = configuration.group.number
        request.is_session_leader = configuration.group == .newSession || ends.terminal != nil
        let descriptors = ends.passed.values.map(\.number) + ends.passed.keys
        let spawned = strings.withBytes { bytes in
            bytes.withAddress { strings, _ in unsafe reactor_spawn_start(request, strings, descriptors) }
        }
        withExtendedLifetime(ends) {}
        if spawned.process >= 0 { return spawned }
        let folder = spawned.stage == CInt(reactor_spawn_folder) ? configuration.workingDirectory : nil
        throw IOError(.spawn, configuration.executable(in: folder), Errno(rawValue: spawned.error))
    }
}

extension ChildProcess.Configuration {
    /// The subject of an error.
    fileprivate func executable(in folder: FilePath?) -> String {
        folder.map { "\(executable) in \($0)" } ?? executable
    }
}

// MARK: Sockets

extension ChildProcess.Configuration {
    fileprivate var hasValidSockets: Bool {
        let numbers = ServiceManager.firstSocket..<ServiceManager.firstSocket + CInt(sockets.count)
        let isControl = { (byte: UInt8) in byte < 32 || byte == 127 || byte == UInt8(ascii: ":") }
        return !numbers.contains { descriptors[$0] != nil }
            && !sockets.contains { $0.name.utf8.contains(where: isControl) }
    }

    /// The entries of the environment, but for the one that names the child; nil for those of this process as they are.
    fileprivate var entries: [[UInt8]]? {
        let entries = environment.entries
        guard !sockets.isEmpty else { return entries }
        let names = sockets.map(\.name).joined(separator: ":")
        let kept = (entries ?? processEnvironment).filter { entry in
            !["LISTEN_PID=", "LISTEN_FDS=", "LISTEN_FDNAMES="].contains { entry.starts(with: $0.utf8) }
        }
        return kept + ["LISTEN_FDS=\(sockets.count)", "LISTEN_FDNAMES=\(names)"].map { Array($0.utf8) }
    }
}

extension ChildProcess.Configuration.Group {
    /// The group to join; 0 for a new one, -1 for the parent's, and less for one that the kernel refuses.
    fileprivate var number: CInt {
        switch self {
        case .inherited, .newSession: -1
        case .new: 0
        case .existing(let group): group > 0 ? group : .min
        }
    }
}

extension ChildProcess.Configuration.Environment {
    /// The variables that are set, and those that are removed.
    private var changes: [String: String?] {
        switch self {
        case .inherited: [:]
        case .updated(let changes): changes
        case .custom(let variables): variables.mapValues { $0 }
        }
    }

    /// Whether each name can be one.
    fileprivate var isValid: Bool {
        changes.keys.allSatisfy { !$0.isEmpty && !$0.utf8.contains(equalsSign) }
    }

    /// The entries as execve(2) takes them; nil for those of this process as they are.
    fileprivate var entries: [[UInt8]]? {
        if self == .inherited { return nil }
        let entries = changes.compactMap { name, value in value.map { Array("\(name)=\($0)".utf8) } }
        guard case .updated(let changes) = self else { return entries }
        let names = Set(changes.keys.map { Array($0.utf8)[...] })
        let kept = processEnvironment.filter { entry in
            entry.firstIndex(of: equalsSign).map { !names.contains(entry[..<$0]) } ?? true
        }
        return kept + entries
    }
}

private let equalsSign = UInt8(ascii: "=")

/// The entries of this process's environment as they are (environ(7)), which need be neither text nor variables.
private var processEnvironment: [[UInt8]] {
    var entries: [[UInt8]] = []
    // clearenv(3) sets it to NULL.
    guard unsafe UInt(bitPattern: environ) != 0 else { return [] }
    while let entry = unsafe environ[entries.count] {
        unsafe entries.append(Array(UnsafeRawBufferPointer(start: entry, count: strlen(entry))))
    }
    return entries
}
