import Reactor

/// The worker's side of an import: parses lines, and saves stops in batches. The worker's queue owns the
/// value while it reads; the operation receives it at the end.
struct StopImport: Sendable {
    /// Longer lines are skipped, so that memory does not depend on the file.
    static let lineLimit = 65_536

    private let path: String
    private let batchSize: Int
    private let report: @Sendable (_ line: Int, BadRow) -> Void

    private var parser = CSVParser()
    private var columns: StopColumns?
    private var database: StopDatabase?
    private var batch: [Stop] = []

    /// The number of rows in the batches that were saved.
    var savedCount: Int { database?.savedCount ?? 0 }
    /// The number of rows that were skipped.
    private(set) var badCount = 0

    /// - Parameters:
    ///   - path: The path of the database, which is opened when the header has been read.
    ///   - batchSize: The number of rows in a transaction.
    ///   - report: Called for each bad row with the line on which it begins.
    init(
        into path: String, batchSize: Int, report: @escaping @Sendable (_ line: Int, BadRow) -> Void
    ) {
        self.path = path
        self.batchSize = batchSize
        self.report = report
    }

    /// Takes the file's next line.
    mutating func take(_ bytes: RawSpan, _ line: LineFramer.Line) throws {
        parser.push(bytes, number: line.number, isWhole: line.ending != .truncated)
        while let record = parser.next() { try take(record) }
    }

    /// Saves the last batch, and closes the database.
    mutating func finish() throws {
        parser.end()
        while let record = parser.next() { try take(record) }
        if columns == nil { throw InvalidHeader() }
        try saveBatch()
        try database?.close()
    }

    /// Calls `body` on some thread when a batch that was being saved at a cancellation has been saved.
    func afterSaving(_ body: @escaping @Sendable () -> Void) {
        if let database { database.afterSaving(body) } else { body() }
    }

    private mutating func take(_ record: CSVRecord) throws {
        guard let columns else { return try begin(record) }
        do throws(BadRow) { batch.append(try columns.stop(record)) } catch {
            badCount += 1
            report(record.line, error)
        }
        if batch.count == batchSize { try saveBatch() }
    }

    private mutating func begin(_ header: CSVRecord) throws {
        columns = try StopColumns(header)
        database = try StopDatabase(path: path)
    }

    private mutating func saveBatch() throws {
        if batch.isEmpty { return }
        try database?.save(batch)
        batch = []
    }
}
