import ArgumentParser
import ExampleSupport
import Glibc
import Reactor

/// Shows a long list whose rows take long to compute.
@main
struct ScrollerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scroller",
        abstract:
            "Shows a long list on a terminal. Its rows are computed on workers, and drawn on the main loop.",
        discussion: """
            Scroll with the arrow keys, Page Up, Page Down, Home, End and the mouse, which drags the list, and \
            the scroll bar at the right; q quits. While you hold a key or drag, the loop is in its tracking \
            mode: the header's default clock, which is only in the default mode, stands still.

            The exit status is 0 after q, 64 without a terminal, and 1 if the file cannot be read. A signal ends \
            the program as any other, after the terminal was restored.
            """)

    @Argument(help: "A file whose lines to show. (default: the prime factors of the numbers from one)")
    var file: String?

    @Option(help: "The number of rows without a file.")
    var rows = 1_000_000

    @Option(help: "Milliseconds for which the computation of a row is delayed.")
    var delay: UInt32 = 5

    @Option(help: "Milliseconds after a key for which it counts as held. It must repeat sooner.")
    var hold = 250

    func validate() throws {
        guard (0...1_000_000_000_000).contains(rows) else {
            throw ValidationError("--rows must be between 0 and 1000000000000.")
        }
        guard delay <= 3_600_000 else { throw ValidationError("--delay must be at most 3600000.") }
        guard (1...3_600_000).contains(hold) else {
            throw ValidationError("--hold must be between 1 and 3600000.")
        }
    }

    func run() throws {
        guard let terminal = TerminalScreen() else {
            throw fail("Standard input and output must be a terminal.", EX_USAGE)
        }
        try Workers.prepare(descriptorCount: 1)
        let code: CInt
        do { code = try show(on: terminal) } catch let error as Errno {
            let reason = error == .illegalSeek ? "Not a regular file" : "\(error)"
            throw fail("\(file ?? ""): \(reason)", 1)
        }
        if code != 0 { throw ExitCode(code) }
    }

    private func show(on terminal: TerminalScreen) throws -> CInt {
        let hold = Duration.milliseconds(hold)
        guard let file else {
            return try Scroller(terminal, showing: Numbers(count: rows, delay: delay * 1_000), hold: hold)
                .run()
        }
        let lines = try FileLines(path: FilePath(file), delay: delay * 1_000)
        let scroller = Scroller(terminal, showing: lines, hold: hold)
        lines.findLines { scroller.rowsChanged() }
        return try scroller.run()
    }

    private func fail(_ message: String, _ code: CInt) -> ExitCode {
        let errors = OutputStream(descriptor: .standardError)
        errors.open()
        _ = errors.write("scroller: \(message)\n")
        return ExitCode(code)
    }
}
