import Glibc
import Reactor

/// The terminal of standard input and output, and its alternate screen, whose end brings back what the user saw before.
final class TerminalScreen {
    let input = InputStream(descriptor: .standardInput)
    let output = OutputStream(descriptor: .standardOutput)
    private let terminal = Terminal()

    /// Fails if either is not a terminal.
    init?() {
        guard isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1 else { return nil }
        output.writeBufferSize = Self.bufferSize
    }

    /// Several screens, so that the loop never waits for a slow terminal.
    private static let bufferSize = 1 << 18

    /// Calls `body` while keys and the mouse arrive at once and without echo, and the program uses the screen. However the
    /// program ends, and while Ctrl-Z stops it, the user has the terminal as it was.
    func use(_ body: () throws -> Void) throws {
        try terminal.withMode(.cbreak, entering: Self.enterSequence, leaving: Self.leaveSequence) {
            try body()
            // Fails if the terminal has gone, or accepts nothing.
            try? output.flushAndWait(until: .now.advanced(by: .seconds(1)))
            // Keys that have arrived since would go to the shell.
            tcflush(STDIN_FILENO, TCIFLUSH)
        }
    }

    /// Whether the program may draw: it does not while it continues in the background.
    var isForeground: Bool { tcgetpgrp(STDIN_FILENO) == getpgrp() }

    /// Lines and columns; 24 by 80 if the terminal does not know.
    var size: (lines: Int, columns: Int) {
        guard let size = try? terminal.size(), size.rows > 0, size.columns > 0 else { return (24, 80) }
        return (Int(size.rows), Int(size.columns))
    }

    // The alternate screen; no cursor; no automatic line breaks; button presses (1000) and drags (1002) of
    // the mouse, in the format that has no limit of columns (1006).
    private static let enterSequence =
        "\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l\u{1B}[?1000h\u{1B}[?1002h\u{1B}[?1006h"
    private static let leaveSequence =
        "\u{1B}[?1006l\u{1B}[?1002l\u{1B}[?1000l\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l"
}
