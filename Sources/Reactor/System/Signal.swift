import CReactorLinux
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
    /// SIGKILL: ends the process. Cannot be caught.
    public static let kill = Signal(rawValue: SIGKILL)
    /// SIGUSR1: what the program defines.
    public static let userDefinedOne = Signal(rawValue: SIGUSR1)
    /// SIGUSR2: what the program defines.
    public static let userDefinedTwo = Signal(rawValue: SIGUSR2)
    /// SIGTERM: asks the process to end.
    public static let terminate = Signal(rawValue: SIGTERM)
    /// SIGCONT: continues a stopped process.
    public static let resume = Signal(rawValue: SIGCONT)
    /// SIGSTOP: stops the process. Cannot be caught.
    public static let stop = Signal(rawValue: SIGSTOP)
    /// SIGWINCH: the size of the terminal has changed.
    public static let windowSizeChange = Signal(rawValue: SIGWINCH)
}

extension Signal: CustomStringConvertible {
    /// The name, such as `SIGINT`; `signal 40` for a real-time signal.
    public var description: String {
        guard let name = unsafe reactor_signal_name(rawValue) else { return "signal \(rawValue)" }
        return unsafe "SIG\(String(cString: name))"
    }
}
