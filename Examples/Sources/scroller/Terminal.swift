import Glibc
import Reactor

/// The terminal of standard input and output. While the program uses it, keys and the mouse arrive at once
/// and without echo, and the screen is an alternate one, whose end brings back what the user saw before.
final class Terminal {
    let input = InputStream(descriptor: .standardInput)
    let output = OutputStream(descriptor: .standardOutput)
    /// Whether the program uses the screen.
    private(set) var isActive = false
    /// The settings to restore.
    private let settings: termios

    /// Fails if either is not a terminal.
    init?() {
        var settings = termios()
        guard isatty(STDOUT_FILENO) == 1, unsafe tcgetattr(STDIN_FILENO, &settings) == 0 else { return nil }
        self.settings = settings
        Self.restoreOnTrap(settings)
        output.writeBufferSize = Self.bufferSize
    }

    /// Several screens, so that the loop never waits for a slow terminal.
    private static let bufferSize = 1 << 18

    /// Uses the screen, unless the program is in the background.
    func enter() {
        guard isForeground else { return }
        var raw = settings
        // Ctrl-C and Ctrl-Z still send signals.
        raw.c_lflag &= ~tcflag_t(ICANON | ECHO)
        raw.c_iflag &= ~tcflag_t(IXON)
        unsafe tcsetattr(STDIN_FILENO, TCSANOW, &raw)
        _ = output.write(Self.enterSequence)
        isActive = true
    }

    /// Restores the screen and the settings. Does nothing if the program does not use the screen.
    func leave() {
        guard isActive else { return }
        isActive = false
        _ = output.write("\(Self.leaveSequence)")
        // Fails if the terminal has gone, or accepts nothing.
        try? output.flush(until: .now.advanced(by: .seconds(1)))
        guard isForeground else { return }
        var settings = settings
        // Keys that arrived since would go to the shell.
        unsafe tcsetattr(STDIN_FILENO, TCSAFLUSH, &settings)
    }

    /// A program in the background that changes the settings is stopped.
    private var isForeground: Bool { tcgetpgrp(STDIN_FILENO) == getpgrp() }

    /// Lines and columns; 24 by 80 if the terminal does not know.
    var size: (lines: Int, columns: Int) {
        var size = winsize()
        _ = unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size)
        return size.ws_row == 0 || size.ws_col == 0 ? (24, 80) : (Int(size.ws_row), Int(size.ws_col))
    }

    // The alternate screen; no cursor; no automatic line breaks; button presses (1000) and drags (1002) of
    // the mouse, in the format that has no limit of columns (1006).
    private static let enterSequence =
        "\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l\u{1B}[?1000h\u{1B}[?1002h\u{1B}[?1006h"
    private static let leaveSequence: StaticString =
        "\u{1B}[?1006l\u{1B}[?1002l\u{1B}[?1000l\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l"

    // MARK: Traps

    // Written once, before the signals are handled.
    private nonisolated(unsafe) static var settingsAtTrap = termios()

    /// Restores the screen and the settings if the program traps: its loop, and so ``leave()``, does not run then.
    private static func restoreOnTrap(_ settings: termios) {
        unsafe settingsAtTrap = settings
        for number in [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV] {
            signal(number) { number in
                // Only calls that a signal handler may make (signal-safety(7)).
                let sequence = Terminal.leaveSequence
                _ = unsafe write(STDOUT_FILENO, sequence.utf8Start, sequence.utf8CodeUnitCount)
                _ = unsafe tcsetattr(STDIN_FILENO, TCSANOW, &Terminal.settingsAtTrap)
                _ = signal(number, SIG_DFL)
                raise(number)
            }
        }
    }
}
