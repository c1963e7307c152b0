import ExampleSupport
import GRDB
import ReactorFoundation

/// What an import has done.
struct ImportResult {
    let savedCount: Int
    let badCount: Int
    let byteCount: Int
    let updateCount: Int
    let seconds: Double
    /// The signal that ended the import, if any.
    let signal: Signal?
    /// The message of the error that ended it, if any.
    let error: String?

    /// Requires that the operation has finished.
    init(_ operation: ImportOperation, of command: ImporterCommand, _ duration: Duration, signal: Signal?) {
        savedCount = operation.output?.value.savedCount ?? 0
        badCount = operation.output?.value.badCount ?? 0
        byteCount = operation.output?.byteCount ?? 0
        updateCount = operation.updateCount
        seconds = (duration / .seconds(1) * 1000).rounded() / 1000
        switch operation.result {
        case .failure(is CancellationError): (error, self.signal) = (nil, signal)
        case .failure(let error): (self.error, self.signal) = (Self.message(for: error, command), nil)
        // The signal came too late.
        case .success, nil: (error, self.signal) = (nil, nil)
        }
    }

    /// The database's errors name the database, and all others name the file.
    private static func message(for error: any Error, _ command: ImporterCommand) -> String {
        switch error {
        case let error as DatabaseError: "\(command.database): \(StopDatabase.message(for: error))"
        case let error as IOError: "\(command.file): \(error.reason)"  // its own message repeats the file
        default: "\(command.file): \(error)"
        }
    }

    var json: String {
        JSON.object([
            ("saved", .integer(savedCount)), ("bad", .integer(badCount)), ("bytes", .integer(byteCount)),
            ("seconds", .real(seconds)), ("updates", .integer(updateCount)),
            ("interrupted", .bool(signal != nil)), ("error", error.map { .text($0) } ?? .null),
        ]).description
    }

    var summary: String {
        let prefix = signal.map { "Interrupted by \($0): " } ?? ""
        let (saved, bad) = (savedCount.counting("row"), badCount.counting("bad row"))
        return "\(prefix)\(saved) saved, \(bad) skipped, \(seconds) s"
    }
}
