import ReactorTestSupport
import Testing

@Suite struct TimersTests {
    @Test func `during the drag the tracking timer fires and the default timer does not`() async throws {
        let outcome = try await run("timers", ["--json", "--seconds", "1"])
        #expect(outcome.ending == .exit(0))
        #expect(
            outcome.keys == [
                "default_before", "default_during", "default_after", "common_before", "common_during",
                "common_after", "tracking_before", "tracking_during", "tracking_after",
            ])
        #expect(outcome["default_during"] == 0)
        #expect(outcome["tracking_before"] == 0)
        #expect(outcome["tracking_after"] == 0)
        for key in ["default_before", "default_after", "common_before", "common_during", "tracking_during"] {
            #expect(try #require(outcome[key]) >= 1, "\(key)")
        }
    }

    @Test func `the log has the drag, and the late firing of the default timer after it`() async throws {
        let outcome = try await run("timers", ["--seconds", "0.5"])
        let lines = outcome.output.split(separator: "\n")
        let begin = try #require(lines.firstIndex { $0.contains("The drag begins") })
        let end = try #require(lines.firstIndex { $0.contains("The drag ends") })
        #expect(begin < end)
        let column = "seconds  ".count
        #expect(!lines[begin + 1..<end].contains { $0.dropFirst(column).hasPrefix("fired") })
        #expect(lines[end...].contains { $0.dropFirst(column).hasPrefix("fired, ") })
    }

    @Test(arguments: [["--seconds", "0.1"], ["--seconds", "0.1", "--json"]])
    func `standard output that is full is an error`(options: [String]) async throws {
        let outcome = try await run("timers", options, output: .path("/dev/full"))
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "timers: standard output: No space left on device\n")
    }
}
