import ReactorTesting
import Testing

/// What a loop does where the process may open few descriptors more, or none.
@Suite(.runLoop) struct DescriptorLimitTests {
    @Test func `a loop made with few descriptors left serves timers, and refuses descriptors or serves them`()
        async throws
    {
        let lines = try await probeMainLoop("few descriptors")
        #expect(lines.count == 10)
        for (spare, line) in lines.enumerated() {
            #expect(["\(spare) stopped refused", "\(spare) stopped finished"].contains(line))
        }
        #expect(lines.first == "0 stopped refused")
        #expect(lines.last == "9 stopped finished")
    }

    @Test func `a loop without descriptors delivers the events that need none`() async throws {
        let lines = try await probeMainLoop("streams with few descriptors")
        #expect(lines == (0...5).map { "\($0) bytes end end error opened opened" })
    }

    @Test(arguments: 0...8)
    func `the main queue is served as soon as descriptors are free`(spare: Int) async throws {
        #expect(try await probeMainLoop("a late main queue", ["\(spare)"]) == ["timer", "block", "stopped"])
    }

    @Test(arguments: 0...12)
    func `Dispatch ends no process in which few descriptors are left`(spare: Int) async throws {
        let lines = try await probeMainLoop("first uses of Dispatch", ["\(spare)"])
        try #require(lines.count == 3)
        #expect(lines[0].hasPrefix("resolve localhost: ") || lines[0].contains("127.0.0.1:7"))
        #expect(lines[1] == "flushed")
        #expect(lines[2].hasSuffix(": Too many open files") || lines[2] == "open")
        if spare < 7 { #expect(!lines.contains("open")) }
    }

    @Test func `a mode beyond the first costs a loop three descriptors`() async throws {
        // The main queue's, and those of the loop's first mode.
        #expect(try await probeMainLoop("descriptors of modes") == ["6 3"])
    }
}
