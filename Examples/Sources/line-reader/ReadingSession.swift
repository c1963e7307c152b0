import Dispatch
import ExampleSupport
import Reactor
import SystemPackage

/// The program's work on the main loop. Each file is read on a worker queue, while the loop handles signals, timers and
/// the progress bar.
final class ReadingSession {
    private let command: LineReaderCommand
    private let start = Deadline.now
    private let loop = RunLoop.current
    private let worker = DispatchQueue(label: "lines")
    private let printer = LinePrinter()
    private let console = Console()
    private let interruption: Interruption
    private let heartbeat: Heartbeat
    private var totals = Totals()
    private var hasFailed = false

    init(_ command: LineReaderCommand) throws {
        self.command = command
        interruption = try Interruption()
        heartbeat = Heartbeat()
        // Each tick flushes, so that lines appear even if the input pauses after them.
        if command.every != nil { heartbeat.onTick = { [printer, worker] in printer.flushSoon(on: worker) } }
    }

    /// False after a signal or a failed write.
    var shouldContinue: Bool { interruption.signal == nil && printer.fault == nil }

    /// Reads a file, and runs the loop meanwhile.
    func read(_ file: String) {
        let input = file == "-" ? InputStream(descriptor: .standardInput) : InputStream(path: FilePath(file))
        let visitor = LineVisitor(command, printer)
        let reader = LineReader(
            input, into: visitor, on: worker, framer: command.framer, limits: command.limits
        ) { visitor, bytes, line in
            try visitor.visit(bytes, line)
        }
        interruption.onSignal = { reader.cancel() }
        reader.start(
            progress: { [console] progress in console.show(progress, of: file) },
            completion: { [self] report in
                fileCompleted(file, report)
                loop.stop()
            })
        loop.run(in: .default)
    }

    /// Records a file that is not read, because the program is about to end.
    func skip(_ file: String) { totals.add(FileTotals(path: file)) }

    private func fileCompleted(_ file: String, _ report: HandoffReport<LineOutput<LineVisitor>>) {
        console.clear()
        let result = FileTotals(path: file, report)
        totals.add(result)
        guard let error = result.error else { return }
        hasFailed = true
        console.printError("\(file == "-" ? "standard input" : file): \(error)")
    }

    /// Prints the totals.
    ///
    /// - Returns: The exit status.
    func finish() -> Int32 {
        let signal = interruption.signal
        totals.finish(start.duration(to: .now), heartbeat, signal: signal.map { "\($0)" })
        heartbeat.stop()
        interruption.stop()  // the last write may block: a signal then kills the process
        worker.sync {}  // waits for flushes that a tick has requested
        printer.print(command.json ? totals.json : totals.summary)
        // A closed pipe is not an error: its reader has what it needs.
        if let fault = printer.fault, fault != .brokenPipe {
            hasFailed = true
            console.printError("standard output: \(fault)")
        }
        return signal.map { 128 + $0.rawValue } ?? (hasFailed ? 1 : 0)
    }
}
