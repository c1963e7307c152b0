import Glibc

/// A POSIX signal, by its number: see signal(7).
///
/// ```swift
/// try child.send(.terminate)
/// let realTime = Signal(rawValue: 40)
/// ```
public struct Signal: RawRepresentable, Hashable, Sendable {
    /// The signal's number on this system.
    public let rawValue: CInt

    /// The signal with the number `rawValue`, which is not checked.
    public init(rawValue: CInt) { self.rawValue = rawValue }

    /// SIGHUP: the terminal or the process that controls this one has gone.
    public static let hangUp = Signal(rawValue: SIGHUP)
    /// SIGINT: the user has interrupted the process, with Control-C on a terminal.
    public static let interrupt = Signal(rawValue: SIGINT)
    /// SIGQUIT: the user has ended the process, with Control-\ on a terminal; dumps core by default.
    public static let quit = Signal(rawValue: SIGQUIT)
    /// SIGILL: an illegal instruction, which Swift's traps are on x86.
    public static let illegalInstruction = Signal(rawValue: SIGILL)
    /// SIGTRAP: a breakpoint, which Swift's traps are on ARM.
    public static let trap = Signal(rawValue: SIGTRAP)
    /// SIGABRT: abort(3).
    public static let abort = Signal(rawValue: SIGABRT)
    /// SIGBUS: an access to memory that has nothing behind it, such as beyond the end of a mapped file.
    public static let busError = Signal(rawValue: SIGBUS)
    /// SIGFPE: an arithmetic error, such as an integer division by zero.
    public static let arithmeticError = Signal(rawValue: SIGFPE)
    /// SIGKILL: ends the process. Cannot be caught.
    public static let kill = Signal(rawValue: SIGKILL)
    /// SIGUSR1: what the program defines.
    public static let userDefinedOne = Signal(rawValue: SIGUSR1)
    /// SIGSEGV: an access to memory that is invalid.
    public static let segmentationFault = Signal(rawValue: SIGSEGV)
    /// SIGUSR2: what the program defines.
    public static let userDefinedTwo = Signal(rawValue: SIGUSR2)
    /// SIGPIPE: a write to a pipe or socket whose other end is closed.
    public static let brokenPipe = Signal(rawValue: SIGPIPE)
    /// SIGALRM: alarm(2).
    public static let alarm = Signal(rawValue: SIGALRM)
    /// SIGTERM: asks the process to end.
    public static let terminate = Signal(rawValue: SIGTERM)
    /// SIGCHLD: a child process has ended, stopped or continued.
    public static let child = Signal(rawValue: SIGCHLD)
    /// SIGCONT: continues a stopped process.
    public static let resume = Signal(rawValue: SIGCONT)
    /// SIGSTOP: stops the process. Cannot be caught.
    public static let stop = Signal(rawValue: SIGSTOP)
    /// SIGTSTP: the user has stopped the process, with Control-Z on a terminal.
    public static let terminalStop = Signal(rawValue: SIGTSTP)
    /// SIGWINCH: the size of the terminal has changed.
    public static let windowSizeChange = Signal(rawValue: SIGWINCH)
}

extension Signal: CustomStringConvertible {
    /// The name, such as `SIGINT`; `signal 40` for a signal without a name here.
    public var description: String { Self.names[self] ?? "signal \(rawValue)" }

    private static let names: [Signal: String] = [
        .hangUp: "SIGHUP", .interrupt: "SIGINT", .quit: "SIGQUIT", .illegalInstruction: "SIGILL",
        .trap: "SIGTRAP", .abort: "SIGABRT", .busError: "SIGBUS", .arithmeticError: "SIGFPE",
        .kill: "SIGKILL",
        .userDefinedOne: "SIGUSR1", .segmentationFault: "SIGSEGV", .userDefinedTwo: "SIGUSR2",
        .brokenPipe: "SIGPIPE", .alarm: "SIGALRM", .terminate: "SIGTERM", .child: "SIGCHLD",
        .resume: "SIGCONT", .stop: "SIGSTOP", .terminalStop: "SIGTSTP", .windowSizeChange: "SIGWINCH",
    ]
}
