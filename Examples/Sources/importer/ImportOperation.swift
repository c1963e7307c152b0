import Dispatch
import ReactorFoundation

/// Imports a file of stops into a database. A Dispatch queue reads, parses and saves; the operation's methods
/// and callbacks run on the loop's thread, which stays free.
///
/// `@unchecked Sendable`, as a subclass of `Operation` must be: the variables are used only on the loop's
/// thread.
final class ImportOperation: RunLoopOperation, @unchecked Sendable {
    private let file: String
    private let rows: StopImport
    private let onProgress: (Progress) -> Void
    private var reader: LineReader<StopImport>?

    /// What was imported, up to the end, an error or a cancellation.
    private(set) var output: LineOutput<StopImport>?
    /// How often the progress has changed.
    private(set) var updateCount = 0

    /// - Parameters:
    ///   - file: The path of the file, or - for standard input.
    ///   - rows: Receives the lines.
    ///   - loop: The calling thread's loop.
    ///   - onProgress: Called on the loop's thread when the progress has changed, about a hundred times in
    ///     all.
    init(_ file: String, into rows: StopImport, on loop: RunLoop, onProgress: @escaping (Progress) -> Void) {
        self.file = file
        self.rows = rows
        self.onProgress = onProgress
        super.init(runLoop: loop)
    }

    override func operationDidStart() {
        let input = file == "-" ? InputStream(descriptor: .standardInput) : InputStream(path: FilePath(file))
        let framer = LineFramer(terminator: .lineFeed, limit: StopImport.lineLimit, overflow: .truncate)
        let reader = LineReader(input, into: rows, on: DispatchQueue(label: "stops"), framer: framer) {
            rows, bytes, line in
            try rows.take(bytes, line)
        } atEnd: { rows in
            try rows.finish()
        }
        self.reader = reader
        reader.start(
            inModes: runLoopModes, progress: { [self] in update($0) }, completion: { [self] in end($0) })
    }

    /// Ends the reading after the current line. The operation finishes when the reader has completed: the
    /// worker has then saved a batch that was in progress.
    override func operationDidCancel() { reader?.cancel() }

    private func update(_ reading: HandoffProgress) {
        updateCount += 1
        progress.totalUnitCount = Int64(reading.expectedByteCount ?? -1)  // a negative total is unknown
        progress.completedUnitCount = Int64(reading.byteCount)
        onProgress(progress)
    }

    private func end(_ report: HandoffReport<LineOutput<StopImport>>) {
        reader = nil
        output = report.output
        let result: Result<Void, any Error> =
            switch report.ending {
            case .finished: .success(())
            case .stopped, .cancelled: .failure(CancellationError())
            case .failed(let error): .failure(error)
            }
        // Any thread may finish an operation.
        report.output.value.afterSaving { self.finish(with: result) }
    }
}
