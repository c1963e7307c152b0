import ReactorTestSupport
import SystemPackage
import Testing

@Suite struct DescriptorLimitTests {
    private static func runWithLimit(_ program: String, _ limit: Int, _ text: TemporaryFile) async throws
        -> Outcome
    {
        let command = "ulimit -n \(limit) && exec \(Child.folder)/\(program) \(text.path.string)"
        return try await run("/bin/sh", ["-c", command])
    }

    @Test(arguments: 8...20) func `line-reader reads its file or reports EMFILE under a low descriptor limit`(
        limit: Int
    ) async throws {
        let text = try TemporaryFile("one\ntwo\n")
        let outcome = try await Self.runWithLimit("line-reader --json", limit, text)
        defer { withExtendedLifetime(text) {} }
        if outcome.ending == .exit(0) {
            #expect(outcome["lines"] == 2)
        } else {
            #expect(outcome.ending == .exit(1))
            #expect(outcome.errors.contains("Too many open files"))
        }
    }

    @Test(arguments: 4...30) func `importer imports or reports EMFILE under a low descriptor limit`(
        limit: Int
    )
        async throws
    {
        let folder = TemporaryFolder()
        let text = try TemporaryFile("stop_id\na\nb\n")
        let arguments = "\(text.path) \(folder.path("stops.db")) --json"
        let command = "ulimit -n \(limit) && exec \(Child.folder)/importer \(arguments)"
        let outcome = try await run("/bin/sh", ["-c", command])
        defer { withExtendedLifetime((text, folder)) {} }
        if outcome.ending == .exit(0) {
            #expect(outcome["saved"] == 2)
        } else {
            #expect(outcome.ending == .exit(1))
            #expect(outcome.errors.contains("Too many open files"))
        }
    }

    @Test(arguments: ["chat", "echo-server"])
    func `a server without standard output ends with an error`(program: String) async throws {
        let outcome = try await run(program, ["--port", "0"], output: .closed)
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors.contains("Bad file descriptor"))
    }

    @Test(arguments: 5...20) func `timers fire under a low descriptor limit`(limit: Int) async throws {
        let command = "ulimit -n \(limit) && exec \(Child.folder)/timers --json --seconds 0.2"
        let outcome = try await run("/bin/sh", ["-c", command])
        #expect(outcome.ending == .exit(0))
        #expect(try #require(outcome["tracking_during"]) >= 1)
    }
}
