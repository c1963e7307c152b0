import Foundation
import GRDB
import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

@Suite struct ImporterTests {
    private let folder = TemporaryFolder()
    private var database: String { folder.path("stops.db") }

    private func runImporter(
        _ text: String, _ options: [String] = [], output: Child.End = .pipe
    ) async throws -> Outcome {
        try await runImporter(Array(text.utf8), options, output: output)
    }

    private func runImporter(
        _ bytes: [UInt8], _ options: [String] = [], output: Child.End = .pipe
    ) async throws -> Outcome {
        let file = try folder.file(bytes, name: "stops.txt")
        return try await run("importer", [file.string, database] + options, output: output)
    }

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

    @Test func `all columns are saved, and empty fields are null`() async throws {
        let outcome = try await runImporter(
            "\u{FEFF}\(Self.header)\r\na,1,\"Main, \"\"North\"\"\nSquare\",59.5,-18.25,1,b\r\nb,,,,,,\r\n\r\n",
            ["--json"])
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
        #expect(
            outcome.keys == ["saved", "bad", "bytes", "seconds", "updates", "interrupted", "error"])
        #expect(outcome["saved"] == 2 && outcome["bad"] == 0 && outcome["interrupted"] == 0)
        #expect(try rows() == ["a|1|Main, \"North\"\nSquare|59.5|-18.25|1|b", "b||||||"])
    }

    @Test func `columns may come in any order, be missing or be unknown`() async throws {
        let outcome = try await runImporter("zone,stop_name,stop_id\n9,Main,a\n9,\"\",b")
        #expect(outcome.ending == .exit(0))
        #expect(outcome.output.hasPrefix("2 rows saved, 0 bad rows skipped, "))
        #expect(try rows() == ["a||Main||||", "b||||||"])
    }

    @Test func `a row replaces a stop with the same identifier, in the file or the database`() async throws {
        _ = try await runImporter("stop_id,stop_name\na,1\nb,1\na,2\n")
        _ = try await runImporter("stop_id,stop_name\nb,3\n")
        #expect(try rows("stop_id, stop_name") == ["a|2", "b|3"])
    }

    @Test func `bad rows are named by their lines, counted and skipped`() async throws {
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
        let outcome = try await runImporter(Array(text.utf8) + [0x0A, 0xFF, 0x2C, 0x0A], ["--json"])
        #expect(outcome.ending == .exit(0))
        #expect(
            outcome.errors.split(separator: "\n").map { $0.replacing("importer: \(file):", with: "") } == [
                "3: 3 fields instead of 7", "4: stop_id is empty", "5: stop_lat is not in its range: 90.1",
                "7: stop_lon is not in its range: x", "8: location_type is not in its range: 5",
                "9: stop_lat is not in its range: nan",
                "10: there is text between a closing quote and the next comma",
                "11: a quoted field has no end", "13: the text is not UTF-8",
            ])
        #expect(outcome["saved"] == 2 && outcome["bad"] == 9)
        #expect(try rows("stop_id, stop_lat, stop_lon") == ["a|90.0|180.0", "i|-90.0|-180.0"])
    }

    @Test func `a null character, hexadecimal digits and a column that is missing make a row bad`()
        async throws
    {
        let text =
            "stop_id,stop_lat\na\0b,1\nc,0x1p3\nd\ne,\u{1B}[2J\(String(repeating: "9", count: 50))\nf,+1e1\n"
        let outcome = try await runImporter(text)
        #expect(
            outcome.errors.split(separator: "\n").map { $0.split(separator: "stops.txt:").last ?? "" } == [
                "2: a field has a null character", "3: stop_lat is not in its range: 0x1p3",
                "4: 1 field instead of 2",
                "5: stop_lat is not in its range: \u{FFFD}[2J\(String(repeating: "9", count: 36))…",
            ])
        #expect(outcome.output.hasPrefix("1 row saved, 4 bad rows skipped, "))
        #expect(try rows("stop_id, stop_lat") == ["f|10.0"])
    }

    @Test func `progress is reported about a hundred times for a long file`() async throws {
        let text = "stop_id\n" + (0..<20_000).map { "stop number \($0)\n" }.joined()
        let outcome = try await runImporter(text, ["--json", "--batch", "10000"])
        #expect(outcome["saved"] == 20_000)
        #expect(try #require(outcome["updates"]) >= 1)
        #expect(try #require(outcome["updates"]) <= 101)
        #expect(try rows("count(*)") == ["20000"])
    }

    // MARK: Cancelling

    @Test(arguments: [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")])
    func `a signal ends the import, and whole batches remain`(signal: CInt, name: String) async throws {
        let arguments = ["-", database, "--batch", "10"]
        let outcome = try await run("importer", arguments, input: .pipe) { [self] child in
            child.write("stop_id\n" + (100..<125).map { "\($0)\n" }.joined())
            waitUntil { (try? rows("count(*)")) == ["20"] }
            child.send(signal)
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(128 + signal))
        #expect(outcome.output.hasPrefix("Interrupted by \(name): 20 rows saved, 0 bad rows skipped, "))
        #expect(outcome.errors == "")
        #expect(try rows("stop_id") == (100..<120).map(String.init))
    }

    @Test(arguments: 1...3) func `an import that is cancelled at any row has saved whole batches`(round: Int)
        async throws
    {
        let text = "stop_id\n" + (10_000..<30_000).map { "\($0)\n" }.joined()
        let file = try folder.file(text.utf8, name: "stops.txt")
        let arguments = [file.string, database, "--batch", "7", "--json"]
        let outcome = try await run("importer", arguments) { [self] child in
            waitUntil { (try? rows("count(*)").first.flatMap { Int($0) } ?? 0) ?? 0 > round * 100 }
            child.send(SIGINT)
            return child.readOutput()
        }
        let saved = try Int(#require(outcome["saved"]))
        #expect(try rows("stop_id") == (10_000..<10_000 + saved).map(String.init))
        // Unless the signal came too late.
        if outcome["interrupted"] == 1 {
            #expect(outcome.ending == .exit(130))
            #expect(saved.isMultiple(of: 7))
        }
    }

    // MARK: Errors

    @Test(arguments: ["", "\n\n", "name,stop\na,b\n", "\"stop_id\na\n"])
    func `a file without a header is an error, and makes no database`(text: String) async throws {
        let outcome = try await runImporter(text)
        #expect(outcome.ending == .exit(1))
        let file = folder.path("stops.txt")
        #expect(outcome.errors == "importer: \(file): The first line does not name a column stop_id\n")
        #expect(folder.names == ["stops.txt"])
    }

    @Test func `a missing file is an error, which the JSON output has too`() async throws {
        let outcome = try await run("importer", ["nofile", database, "--json"])
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "importer: nofile: No such file or directory\n")
        #expect(outcome.output.contains(#""error":"nofile: No such file or directory""#))
    }

    @Test func `a file that is not a database is left as it is`() async throws {
        let text = String(repeating: "This is text. ", count: 100)
        _ = try folder.file(text.utf8, name: "stops.db")
        let outcome = try await runImporter("stop_id\na\n")
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "importer: \(database): The file is not an SQLite database\n")
        #expect(try String(contentsOfFile: database, encoding: .utf8) == text)
    }

    @Test func `a database that another program has locked is an error`() async throws {
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: database, configuration: configuration)
        try await other.writeWithoutTransaction { try $0.execute(sql: "BEGIN EXCLUSIVE") }
        let outcome = try await runImporter("stop_id\na\n")
        #expect(outcome.ending == .exit(1))
        #expect(
            outcome.errors == """
                importer: \(database): Another program has locked the database. Try again when it has ended

                """)
        try await other.writeWithoutTransaction { try $0.execute(sql: "ROLLBACK") }
    }

    @Test(.enabled("needs tmpfs in a user namespace") { try await canMount })
    func `a full disk is an error`() async throws {
        let text = "stop_id\n" + (0..<10_000).map { "stop number \($0)\n" }.joined()
        let file = try folder.file(text.utf8, name: "stops.txt")
        let command =
            "mount -t tmpfs -o size=128k none /mnt && exec \(Child.folder)/importer \(file) /mnt/stops.db"
        let outcome = try await run("/usr/bin/unshare", ["-rm", "sh", "-c", command])
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "importer: /mnt/stops.db: The disk is full\n")
        #expect(!outcome.output.hasPrefix("0 rows saved"))
    }

    private static var canMount: Bool {
        get async throws {
            try await run("/usr/bin/unshare", ["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).ending
                == .exit(0)
        }
    }

    @Test func `a folder that does not exist is an error`() async throws {
        let file = try folder.file("stop_id\na\n".utf8, name: "stops.txt")
        let outcome = try await run("importer", [file.string, "/nofolder/stops.db"])
        #expect(outcome.ending == .exit(1))
        #expect(
            outcome.errors == """
                importer: /nofolder/stops.db: The database cannot be opened. Check the folder and its permissions

                """)
    }

    @Test func `a closed pipe is not an error, but any other failure of standard output is`() async throws {
        let closed = try await runImporter("stop_id\na\n", output: .closed)
        #expect(closed.ending == .exit(1))
        #expect(closed.errors == "importer: standard output: Bad file descriptor\n")
        let full = try await runImporter("stop_id\na\n", output: .path("/dev/full"))
        #expect(full.ending == .exit(1))
        #expect(full.errors == "importer: standard output: No space left on device\n")
        #expect(try rows("stop_id") == ["a"])
        let pipe = try await run("importer", ["-", database], input: .pipe) { child in
            child.closeOutput()
            child.write("stop_id\nb\n")
            return ""
        }
        #expect(pipe.ending == .exit(0))
        #expect(pipe.errors == "")
    }

    @Test(arguments: [["a"], ["a", "b", "--batch", "0"]])
    func `wrong arguments are refused`(arguments: [String]) async throws {
        #expect(try await run("importer", arguments).ending == .exit(64))
    }
}
