#if DEBUG

import Reactor
import Testing

@testable import ReactorHTTP

/// Values that know neither loop nor network.
@Suite struct PureTests {
    @Test func `a sleep counts fully, and a long callback only in part`() {
        var time = ServedTime()
        let second = Int64(1_000_000_000)
        time.note(.beforeTimers, at: 0)
        time.note(.beforeWaiting, at: 1000)
        #expect(time.elapsed(at: 1000) == 1000)
        time.note(.afterWaiting, at: 10 * second + 1000)
        #expect(time.elapsed(at: 10 * second + 1000) == 10 * second + 1000)
        time.note(.beforeTimers, at: 70 * second)
        #expect(time.elapsed(at: 70 * second) == 10 * second + 1000 + second / 10)
    }

    @Test func `fields are found in any case and keep their order`() {
        var fields: HTTPFields = ["Accept": "a", "X": "1"]
        fields.append("ACCEPT", "b")
        #expect(fields.values(for: "accept") == ["a", "b"])
        fields["x"] = nil
        #expect(fields["X"] == nil)
        fields["accept"] = "c"
        #expect(fields.fields.map(\.name) == ["accept"])
    }
}

#endif
