import Dispatch
import ExampleSupport
import Reactor
import SystemPackage

/// What the program does on its main loop: has one file after another read on a worker queue, and stays free
/// for signals, timers and the progress bar.
final class Reading {
    private let command: LineReaderCommand
    private let beginning = Deadline.now
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
        // A line that is followed by a long silence is not kept waiting.
        if command.every != nil { heartbeat.onTick = { [printer, worker] in printer.flushSoon(on: worker) } }
    }

    /// Whether there is any point in reading another file.
    var goesOn: Bool { interruption.signal == nil && printer.fault == nil }

    /// Reads a file, and runs the loop meanwhile.
    func read(_ file: String) {
        let input = file == "-" ? InputStream(descriptor: .standardInput) : InputStream(path: FilePath(file))
        let visitor = LineVisitor(command, printer)
        let reader = LineReader(input, into: visitor, on: worker, options: command.options) {
            visitor, bytes, line in try visitor.visit(bytes, line)
        }
        interruption.onSignal = { reader.cancel() }
        reader.start(
            progress: { [console] progress in console.show(progress, of: file) },
            completion: { [self] report in
                take(report, of: file)
                loop.stop()
            })
        loop.run(in: .default)
    }

    /// Notes a file that there is no point in reading any more.
    func leaveOut(_ file: String) { totals.add(FileTotals(path: file)) }

    private func take(_ report: HandoffReport<LineReader<LineVisitor>.Output>, of file: String) {
        console.clear()
        let result = FileTotals(path: file, report)
        totals.add(result)
        guard let error = result.error else { return }
        hasFailed = true
        console.complain("\(file == "-" ? "standard input" : file): \(error)")
    }

    /// Prints the totals.
    ///
    /// - Returns: The exit code.
    func finish() -> Int32 {
        let signal = interruption.signal
        totals.finish(beginning.duration(to: .now), heartbeat, signal: signal.map(Interruption.name(of:)))
        heartbeat.stop()
        interruption.stop()  // the last write may wait for its reader: a signal ends that in its usual way
        worker.sync {}  // what a tick has asked to have written comes before the totals
        printer.print(command.json ? totals.json : totals.summary)
        // A reader that has gone has had enough: that is no failure.
        if let fault = printer.fault, fault != .brokenPipe {
            hasFailed = true
            console.complain("standard output: \(fault)")
        }
        return signal.map { 128 + $0 } ?? (hasFailed ? 1 : 0)
    }
}
