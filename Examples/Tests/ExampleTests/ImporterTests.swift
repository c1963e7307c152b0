import ExampleTestSupport
import Foundation
import GRDB
import Glibc
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ImporterTests {
    private let folder = TemporaryFolder()
    private var database: String { folder.path("stops.db") }

    private func runImporter(_ bytes: some Sequence<UInt8>, _ options: [String] = []) throws -> Outcome {
        let file = try folder.file(bytes, name: "stops.txt")
        return try run("importer", [file.string, database] + options)
    }

    private func runImporter(_ text: String) throws -> Outcome { try runImporter(text.utf8) }

    /// The table's rows, as SQLite's shell prints them.
    private func rows(_ columns: String = "*") throws -> [String] {
        try DatabaseQueue(path: database).read { database in
            try Row.fetchAll(database, sql: "SELECT \(columns) FROM stops ORDER BY stop_id").map { row in
                row.databaseValues.map { $0.isNull ? "" : "\($0.storage.value!)" }.joined(separator: "|")
            }
        }
    }

    private static let header = "stop_id,stop_code,stop_name,stop_lat,stop_lon,location_type,parent_station"

    // MARK: Rows

    @Test func `all columns are saved in any order, and empty or missing fields are null`() throws {
        let outcome = try runImporter(
            "\u{FEFF}\(Self.header)\r\na,1,\"Main, \"\"North\"\"\nSquare\",59.5,-18.25,1,b\r\nb,,,,,,\r\n\r\n"
                .utf8, ["--json"])
        #expect(outcome.isClean)
        #expect(outcome.keys == ["saved", "bad", "bytes", "seconds", "updates", "interrupted", "error"])
        #expect(outcome["saved"] == 2 && outcome["bad"] == 0 && outcome["interrupted"] == 0)
        #expect(outcome["updates"] ?? 0 >= 1)
        #expect(try runImporter("zone,stop_name,stop_id\n9,Main,c").output.hasPrefix("1 row saved, 0 bad"))
        #expect(try rows() == ["a|1|Main, \"North\"\nSquare|59.5|-18.25|1|b", "b||||||", "c||Main||||"])
    }

    @Test func `a row replaces a stop with the same identifier, in the file or the database`() throws {
        _ = try runImporter("stop_id,stop_name\na,1\nb,1\na,2\n")
        _ = try runImporter("stop_id,stop_name\nb,3\n")
        #expect(try rows("stop_id, stop_name") == ["a|2", "b|3"])
    }

    @Test func `bad rows are named by their lines, counted and skipped`() throws {
        let text = """
            \(Self.header)
            a,,,90,180,,
            b,,
            ,,,,,,
            "c
            ",,,90.1,,,
            d,,,,x,,
            e,,,,,5,
            f,,,nan,,,
            g,,"x"y,,,,
            h,,"open,,,,
            i,,,-90,-180,,
            """
        let file = folder.path("stops.txt")
        let outcome = try runImporter(Array(text.utf8) + [0x0A, 0xFF, 0x2C, 0x0A], ["--json"])
        #expect(outcome.ending == .exit(0))
        // The numbers of the lines, and the columns at fault.
        let faults = outcome.errors.split(separator: "\n").map {
            $0.replacing("importer: \(file):", with: "").split(separator: " ").prefix(2).joined(
                separator: " ")
        }
        #expect(
            faults == [
                "3: 3", "4: stop_id", "5: stop_lat", "7: stop_lon", "8: location_type", "9: stop_lat",
                "10: there",
                "11: a", "13: the",
            ])
        #expect(outcome["saved"] == 2 && outcome["bad"] == 9)
        #expect(try rows("stop_id, stop_lat, stop_lon") == ["a|90.0|180.0", "i|-90.0|-180.0"])
    }

    @Test func `a null character, hexadecimal digits and a column that is missing make a row bad`() throws {
        let text =
            "stop_id,stop_lat\na\0b,1\nc,0x1p3\nd\ne,\u{1B}[2J\(String(repeating: "9", count: 50))\nf,+1e1\n"
        let outcome = try runImporter(text)
        let faults = outcome.errors.split(separator: "\n").map {
            $0.split(separator: "stops.txt:").last ?? ""
        }
        #expect(faults.map { $0.prefix(2) } == ["2:", "3:", "4:", "5:"])
        // Without control characters, and cut.
        #expect(faults.last?.hasSuffix("\u{FFFD}[2J\(String(repeating: "9", count: 36))…") == true)
        #expect(outcome.output.hasPrefix("1 row saved, 4 bad rows skipped, "))
        #expect(try rows("stop_id, stop_lat") == ["f|10.0"])
    }

    // MARK: Cancelling

    @Test(arguments: [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")])
    func `a signal ends the import, and whole batches remain`(signal: CInt, name: String) throws {
        let arguments = ["-", database, "--batch", "10"]
        let outcome = try run("importer", arguments, input: .pipe) { child in
            child.write("stop_id\n" + (100..<125).map { "\($0)\n" }.joined())
            // Not before it has a write-ahead log: making that fails while another program reads.
            waitUntil {
                folder.names.contains("stops.db-wal") && (try? rows("count(*)")) == ["20"] || child.hasEnded
            }
            child.send(signal)
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(128 + signal))
        #expect(outcome.output.hasPrefix("Interrupted by \(name): 20 rows saved, 0 bad rows skipped, "))
        #expect(outcome.errors == "")
        #expect(try rows("stop_id") == (100..<120).map(String.init))
    }

    // MARK: Errors

    @Test(arguments: ["", "\n\n", "name,stop\na,b\n", "\"stop_id\na\n"])
    func `a file without a header is an error, and makes no database`(text: String) throws {
        #expect(try runImporter(text).failed("stops.txt: The first line") && folder.names == ["stops.txt"])
    }

    @Test func `a file that is missing, or a folder, is an error, which the JSON output has too`() throws {
        let outcome = try run("importer", ["nofile", database, "--json"])
        #expect(outcome.failed("nofile: No such file or directory"))
        #expect(outcome.output.contains(#""error":"nofile: No such file or directory""#))
        let file = try folder.file("stop_id\na\n".utf8, name: "stops.txt")
        #expect(try run("importer", [file.string, "/nofolder/stops.db"]).failed("/nofolder/stops.db"))
    }

    @Test func `a file that is not a database is left as it is`() throws {
        let text = String(repeating: "This is text. ", count: 100)
        _ = try folder.file(text.utf8, name: "stops.db")
        #expect(try runImporter("stop_id\na\n").failed("not an SQLite database"))
        #expect(content(of: database) == Array(text.utf8))
    }

    @Test func `a database that another program has locked is an error`() throws {
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: database, configuration: configuration)
        try other.writeWithoutTransaction { try $0.execute(sql: "BEGIN EXCLUSIVE") }
        #expect(try runImporter("stop_id\na\n").failed("locked"))
        try other.writeWithoutTransaction { try $0.execute(sql: "ROLLBACK") }
    }
}
