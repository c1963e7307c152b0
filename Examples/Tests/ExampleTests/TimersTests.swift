import ReactorTestSupport
import Testing

@Suite struct TimersTests {
    @Test func `while a user drags, the default timer rests and the tracking timer ticks`() async throws {
        let outcome = try await running("timers", ["--json", "--seconds", "1"])
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

    @Test func `the story tells of the drag and of the timer that was late for it`() async throws {
        let outcome = try await running("timers", ["--seconds", "0.5"])
        let lines = outcome.output.split(separator: "\n")
        let begin = try #require(lines.firstIndex { $0.contains("The drag begins") })
        let end = try #require(lines.firstIndex { $0.contains("The drag has ended") })
        #expect(begin < end)
        let column = "seconds  ".count
        #expect(!lines[begin + 1..<end].contains { $0.dropFirst(column).hasPrefix("tick") })
        #expect(lines[end...].contains { $0.dropFirst(column).hasPrefix("tick, ") })
    }
}
