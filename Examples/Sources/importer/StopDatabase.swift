import GRDB

/// An SQLite database with a table of stops.
struct StopDatabase: Sendable {
    private let queue: DatabaseQueue

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

    /// Saves stops in one transaction: all of them, or none. A stop replaces an earlier one of the same
    /// identifier.
    func save(_ stops: [Stop]) throws {
        try queue.write { database in
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
    }

    /// Moves the log into the database's file, and closes it.
    func close() throws { try queue.close() }

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
