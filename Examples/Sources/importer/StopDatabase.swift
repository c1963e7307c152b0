import Dispatch
import ExampleSupport
import GRDB

/// An SQLite database with a table of stops. Its queue saves a batch while the caller prepares the next one.
final class StopDatabase: Sendable {
    private struct State {
        var savedCount = 0
        /// The error of the batch that was not saved. No batch is saved after it.
        var error: (any Error)?
    }

    private let queue: DatabaseQueue
    private let state = Mutex(State())
    /// Free while no batch is being saved. If the database is slower than the file, the reader waits here.
    private let isIdle = DispatchSemaphore(value: 1)

    /// Opens or creates the database and its table.
    init(path: String) throws {
        var configuration = Configuration()
        // A write-ahead log: a transaction waits for no disk, and is whole after a crash.
        configuration.journalMode = .wal
        configuration.busyMode = .timeout(Self.patience)
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA wal_autocheckpoint = \(Self.logLimit)")
        }
        queue = try DatabaseQueue(path: path, configuration: configuration)
        try queue.write { database in
            try database.create(table: "stops", options: [.ifNotExists, .withoutRowID]) { table in
                table.primaryKey("stop_id", .text)
                table.column("stop_code", .text)
                table.column("stop_name", .text)
                table.column("stop_lat", .double)
                table.column("stop_lon", .double)
                table.column("location_type", .integer)
                table.column("parent_station", .text)
            }
        }
    }

    /// Seconds to wait while another program has locked the database.
    private static let patience = 1.0

    /// In pages of 4 KiB. Each time that the log is moved into the database's file, the import waits for the
    /// disk: with SQLite's default of 1000, a third of the time.
    private static let logLimit = 10_000

    /// The number of stops that were saved.
    var savedCount: Int { state.withLock { $0.savedCount } }

    /// Begins to save stops in one transaction: all of them, or none. Waits first until the last batch has
    /// been saved. A stop replaces an earlier one of the same identifier.
    ///
    /// - Throws: The error of an earlier batch.
    func save(_ stops: [Stop]) throws {
        isIdle.wait()
        queue.asyncWrite { [self] database in
            try check()
            try Self.insert(stops, into: database)
        } completion: { [self] _, result in
            state.withLock { state in
                switch result {
                case .success: state.savedCount += stops.count
                case .failure(let error): state.error = error
                }
            }
            isIdle.signal()
        }
        try check()
    }

    /// Calls `body` on some thread when the batches have been saved.
    func afterSaving(_ body: @escaping @Sendable () -> Void) {
        queue.asyncWriteWithoutTransaction { _ in body() }
    }

    private func check() throws {
        if let error = state.withLock({ $0.error }) { throw error }
    }

    private static func insert(_ stops: [Stop], into database: Database) throws {
        let statement = try database.cachedStatement(
            sql: """
                INSERT OR REPLACE INTO stops
                (stop_id, stop_code, stop_name, stop_lat, stop_lon, location_type, parent_station)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """)
        for stop in stops {
            statement.setUncheckedArguments([
                stop.identifier, stop.code, stop.name, stop.latitude, stop.longitude, stop.locationType,
                stop.parentStation,
            ])
            try statement.execute()
        }
    }

    /// Waits until the batches have been saved, moves the log into the database's file, and closes it.
    func close() throws {
        try queue.close()
        try check()
    }

    /// What is wrong with the database, and what to do.
    static func message(for error: DatabaseError) -> String {
        switch error.resultCode {
        case .SQLITE_BUSY, .SQLITE_LOCKED:
            "Another program has locked the database. Try again when it has ended"
        case .SQLITE_NOTADB: "The file is not an SQLite database"
        case .SQLITE_CANTOPEN: "The database cannot be opened. Check the folder and its permissions"
        case .SQLITE_READONLY: "The database is read-only"
        case .SQLITE_FULL: "The disk is full"
        default: error.message ?? "SQLite error \(error.resultCode.rawValue)"
        }
    }
}
