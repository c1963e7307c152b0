import ReactorTestSupport
import SystemPackage
import Testing

/// Programs that may open only a few descriptors do their work, or say why not.
@Suite struct DescriptorLimitTests {
    private static func run(_ program: String, _ limit: Int, _ text: TemporaryFile) async throws -> Outcome {
        let command = "ulimit -n \(limit) && exec \(Child.folder)/\(program) \(text.path.string)"
        return try await running("/bin/sh", ["-c", command])
    }

    @Test(arguments: 8...20) func `line-reader reads, or says what it lacks`(limit: Int) async throws {
        let text = try TemporaryFile("one\ntwo\n")
        let outcome = try await Self.run("line-reader --json", limit, text)
        defer { withExtendedLifetime(text) {} }
        if outcome.ending == .exit(0) {
            #expect(outcome["lines"] == 2)
        } else {
            #expect(outcome.ending == .exit(1))
            #expect(outcome.errors.contains("Too many open files"))
        }
    }

    @Test(arguments: 5...20) func `timers fire whatever the limit is`(limit: Int) async throws {
        let command = "ulimit -n \(limit) && exec \(Child.folder)/timers --json --seconds 0.2"
        let outcome = try await running("/bin/sh", ["-c", command])
        #expect(outcome.ending == .exit(0))
        #expect(try #require(outcome["tracking_during"]) >= 1)
    }
}
