import ArgumentParser
import ExampleSupport
import ReactorFoundation

/// Imports the stops of a public-transport timetable into an SQLite database, without blocking the main run
/// loop.
@main
struct ImporterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "importer",
        abstract: "Imports stops of public transport (stops.txt of GTFS) into an SQLite database.",
        discussion: """
            The first line names the columns, in any order; stop_id is required. Rows that are not valid are \
            reported with their line and skipped. A row replaces a stop that has the same stop_id.

            Ctrl-C ends the import. The batches that were saved by then remain.

            With --json, the output is an object with these members:
              saved               the rows that were saved
              bad                 the rows that were skipped
              bytes, seconds
              updates             how often the progress changed
              interrupted         whether SIGINT or SIGTERM ended the import
              error               the error that ended the import, or null

            The exit status is 0 if the file was read to its end, 1 if an error occurred, and 128 plus the \
            signal's number after a signal.
            """)

    @Argument(help: "The file to read. For -, reads standard input.")
    var file: String

    @Argument(help: "The database, which is created if it does not exist.")
    var database: String

    @Option(help: "The number of rows that are saved in one transaction.")
    var batch = 250

    @Flag(help: "Print the result as one JSON object.")
    var json = false

    func validate() throws {
        guard (1...100_000).contains(batch) else {
            throw ValidationError("--batch must be between 1 and 100000.")
        }
    }

    func run() throws {
        try StandardDescriptors.fillGaps()
        try Workers.prepare(descriptorCount: 8)
        let start = Deadline.now
        let console = Console()
        let rows = StopImport(into: database, batchSize: batch) { line, fault in
            console.printError("\(file):\(line): \(fault)")
        }
        let operation = ImportOperation(file, into: rows, on: .main) { console.show($0) }
        let interruption = try Interruption { operation.cancel() }
        OperationQueue.main.addOperation(operation)
        while !operation.isFinished { RunLoop.main.run(mode: .default, before: .distantFuture) }
        interruption.stop()
        console.clearBar()

        let result = ImportResult(operation, of: self, start.duration(to: .now), signal: interruption.signal)
        if let error = result.error { console.printError(error) }
        let isPrinted = print(json ? result.json : result.summary, console)
        let code = result.signal.map { 128 + $0.rawValue } ?? (result.error == nil && isPrinted ? 0 : 1)
        if code != 0 { throw ExitCode(code) }
    }

    /// Returns false if that fails. A closed pipe is not a failure: its reader has what it needs.
    private func print(_ text: String, _ console: Console) -> Bool {
        let output = OutputStream(descriptor: .standardOutput)
        output.open()
        _ = output.write(text + "\n")
        guard let error = output.streamError as? IOError, error.errno != .brokenPipe else { return true }
        console.printError("standard output: \(error.reason)")
        return false
    }
}
