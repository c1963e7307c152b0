public import SystemPackage

extension ChildProcess {
    /// A program to run, with its environment, streams and process group.
    public struct Configuration: Sendable {
        /// The program: a path if it contains a slash, otherwise a name that is looked up in the child's `PATH`. A relative
        /// path starts at the child's working directory.
        public var executable: String
        /// The arguments after the program's name.
        public var arguments: [String]
        /// The first argument, by convention the program's name; nil for ``executable``.
        public var argument0: String?
        /// The environment: this process's, unless another is set.
        public var environment: Environment
        /// The working directory; nil for this process's.
        public var workingDirectory: FilePath?
        /// The child's standard input.
        public var standardInput: Redirection
        /// The child's standard output.
        public var standardOutput: Redirection
        /// The child's standard error.
        public var standardError: Redirection
        /// More descriptors, by their numbers in the child. All others are closed in the child, with or without `O_CLOEXEC`.
        public var descriptors: [Int32: FileDescriptor] = [:]
        /// Sockets that the child takes by ``ServiceManager/takeSockets()`` or sd_listen_fds(3): they are its descriptors from
        /// 3 on, and `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES` are set in its environment. The caller still owns them.
        public var sockets: [ServiceManager.Socket] = []
        /// The process group and the session.
        public var group: Group
        /// The size of a new pseudo-terminal for the child; nil for none.
        ///
        /// The terminal controls a session that the child leads. It replaces inherited descriptors and the pipes of streams:
        /// what the child writes, to standard error too, is read from ``Spawned/standardOutput``.
        public var terminal: Terminal.Size?
        /// The signal that the child gets when the thread that spawned it ends (prctl(2), `PR_SET_PDEATHSIG`), with this
        /// process at the latest; nil for none. Spawn it from a thread that lasts.
        public var parentDeathSignal: Signal?

        /// Describes a program to run.
        public init(
            _ executable: String, _ arguments: [String] = [], environment: Environment = .inherited,
            workingDirectory: FilePath? = nil, standardInput: Redirection = .inherited,
            standardOutput: Redirection = .inherited, standardError: Redirection = .inherited,
            group: Group = .inherited, terminal: Terminal.Size? = nil
        ) {
            (self.executable, self.arguments, self.environment) = (executable, arguments, environment)
            (self.workingDirectory, self.group, self.terminal) = (workingDirectory, group, terminal)
            self.standardInput = standardInput
            self.standardOutput = standardOutput
            self.standardError = standardError
        }
    }
}

extension ChildProcess.Configuration {
    /// The variables of a child.
    @nonexhaustive public enum Environment: Sendable, Hashable {
        /// Those of this process.
        case inherited
        /// Those of this process, with these added or replaced, and those with the value nil removed. All other entries are
        /// passed unchanged, even those that are not text, are duplicates, or have no equals sign.
        case updated([String: String?])
        /// These only.
        case custom([String: String])
    }

    /// The process group and the session of a child.
    @nonexhaustive public enum Group: Sendable, Hashable {
        /// Those of this process.
        case inherited
        /// A new group, which the child leads, so that ``ChildProcess/send(_:toGroup:)`` reaches its children, since Linux 6.9
        /// also when it has ended itself.
        case new
        /// An existing group of this session.
        case existing(Int32)
        /// A new session without a terminal, with a new group.
        case newSession
    }

    /// Where a child reads from, or writes to.
    @nonexhaustive public enum Redirection: Sendable {
        /// The same as this process.
        case inherited
        /// `/dev/null`.
        case null
        /// A file. An output is created if it is missing (mode 0666, less the umask), otherwise truncated or appended to.
        case file(FilePath, append: Bool = false)
        /// A descriptor, which the caller still owns, and closes after the spawn if it is an end of a pipe.
        case descriptor(FileDescriptor)
        /// A pipe to the stream of the same name in ``ChildProcess/Spawned``.
        case stream
        /// Where the child's standard output goes: for its standard error only. Otherwise the spawn throws
        /// `Errno.invalidArgument`.
        case mergedWithStandardOutput
    }
}

extension ChildProcess.Configuration.Environment: CustomStringConvertible, CustomReflectable {
    /// The names of the variables. Their values are not shown, as some are secrets.
    public var description: String {
        switch self {
        case .inherited: "inherited"
        case .updated(let variables): "updated: \(variables.keys.sorted().joined(separator: ", "))"
        case .custom(let variables): "custom: \(variables.keys.sorted().joined(separator: ", "))"
        }
    }

    /// No children, so that `dump` does not show the values.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
