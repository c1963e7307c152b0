import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ModeTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test func `the raw values are those of Cocoa and Core Foundation`() {
        let modes: [RunLoop.Mode] = [.default, .common, .tracking, .eventTracking, .modalPanel]
        #expect(
            modes.map(\.rawValue) == [
                "kCFRunLoopDefaultMode", "kCFRunLoopCommonModes", "UITrackingRunLoopMode",
                "NSEventTrackingRunLoopMode", "NSModalPanelRunLoopMode",
            ])
        let results: [RunLoop.RunResult] = [.finished, .stopped, .timedOut, .handledSource]
        #expect(results.map(\.rawValue) == [1, 2, 3, 4])
        let activities: [RunLoop.Activities] = [
            .entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit, .all,
        ]
        #expect(activities.map(\.rawValue) == [1, 2, 4, 32, 64, 128, 0x0FFF_FFFF])
    }

    @Test(arguments: ["(no mode)", "(nowhere)"])
    func `a common item removed from each common mode is in no mode, whatever its name`(name: String) {
        let timer = Timer(fireDate: .now) { _ in Issue.record("fired") }
        loop.add(timer, forMode: .common)
        for mode in [RunLoop.Mode.default, .tracking] { loop.remove(timer, forMode: mode) }
        #expect(loop.poll(RunLoop.Mode(name)) == .finished)
    }

    @Test func `a new loop's common modes are the default and the tracking mode, and its own`() throws {
        try onAThread {
            RunLoop.current.addCommonMode(.custom)
            #expect(RunLoop.current.modesThatAreCommon == [.default, .tracking, .custom])
        }
        #expect(loop.modesThatAreCommon == [.default, .tracking])
    }

    @Test func `running the common pseudo-mode runs nothing and calls no observer`() {
        loop.hold(.common)
        loop.observe(in: .common) { trace("\($0)") }
        #expect(!loop.run(mode: .common, before: .distantFuture))
        #expect(loop.run(in: .common) == .finished)
        #expect(trace.all.isEmpty)
    }

    @Test func `the current mode is nil outside, the running mode inside, and restored after nesting`() {
        func note() { trace(loop.currentMode?.rawValue ?? "none") }
        for mode in [RunLoop.Mode.outer, .inner] { loop.hold(mode) }
        loop.observe(.beforeTimers, in: .inner) { _ in note() }
        loop.observe(.beforeTimers, in: .outer) { _ in
            note()
            loop.poll(.inner)
            note()
        }
        note()
        loop.poll(.outer)
        note()
        #expect(trace.all == ["none", "outer", "inner", "outer", "none"])
    }

    @Test func `items of the common modes, and other threads, see the mode that really runs`() throws {
        loop.hold(.common)
        loop.observe(.beforeTimers, in: .common) { _ in
            trace(loop.currentMode?.rawValue ?? "none")
            onThreads(1) { _ in trace(loop.currentMode?.rawValue ?? "none") }
        }
        for mode in [RunLoop.Mode.tracking, .default] {
            loop.poll(mode)
            #expect(trace.take() == [mode.rawValue, mode.rawValue])
        }
    }

    @Test func `more than thirty-two modes are as good as a few`() {
        let modes = (0..<200).map { RunLoop.Mode("one of many \($0)") }
        let items = [RunLoop.Source {}, RunLoop.Source {}]
        for (index, mode) in modes.enumerated() {
            loop.perform(inModes: [mode]) { trace(mode.rawValue) }
            loop.add(items[index % 2], forMode: mode)
        }
        loop.perform(inModes: modes) { trace("shared") }
        for (index, mode) in modes.enumerated() {
            #expect(items.map { loop.contains($0, forMode: mode) } == [index % 2 == 0, index % 2 == 1])
        }
        for mode in modes.reversed() { loop.poll(mode) }
        #expect(
            trace.all == [modes[199].rawValue, "shared"] + modes.dropLast().reversed().map(\.rawValue))
    }

    @Test func `a timer in a mode beyond the thirty-second fires in its other modes, too`() {
        let modes = [.default, (0..<40).map { RunLoop.Mode("a timer's \($0)") }[39]]
        for mode in modes {
            let timer = Timer(fireDate: .now) { _ in trace(mode.rawValue) }
            for other in modes { loop.add(timer, forMode: other) }
            loop.poll(mode)
        }
        #expect(trace.all == modes.map(\.rawValue))
    }

    @Test(
        .runLoop(timeLimit: .seconds(60)),
        arguments: [
            Probe(
                "work of two modes that is served or cancelled in one leaves nothing in the other",
                "left in modes",
                [
                    "blocks", "signals", "messages", "timers", "ordered blocks", "cancelled ordered blocks",
                    "signals and removals",
                ].map { "\($0): nothing" }),
            Probe(
                "signals that one loop serves leave nothing in another", "left in loops", ["signals: nothing"]
            ),
        ])
    func `what has been served leaves nothing behind`(probe: Probe) async throws { try await probe.run() }
}

extension RunLoop {
    /// Those of the tests' modes in which what is in the common ones is served.
    fileprivate var modesThatAreCommon: [Mode] {
        let source = hold(.common)
        defer { source.invalidate() }
        let modes: [Mode] = [.default, .tracking, .eventTracking, .modalPanel, .custom]
        return modes.filter { poll($0) != .finished }
    }
}
