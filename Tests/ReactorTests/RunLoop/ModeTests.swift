import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ModeTests {
    @Test func `two modes with the same name are the same mode`() {
        #expect(RunLoop.Mode("same name") == RunLoop.Mode(rawValue: "same name"))
        #expect(RunLoop.Mode("same name") != RunLoop.Mode("other name"))
        #expect(RunLoop.Mode("kCFRunLoopCommonModes") == .common)
    }

    @Test func `the raw values are those of Cocoa`() {
        let names: [(RunLoop.Mode, String)] = [
            (.default, "kCFRunLoopDefaultMode"), (.common, "kCFRunLoopCommonModes"),
            (.tracking, "UITrackingRunLoopMode"), (.eventTracking, "NSEventTrackingRunLoopMode"),
            (.modalPanel, "NSModalPanelRunLoopMode"),
        ]
        for (mode, name) in names { #expect(mode.rawValue == name) }
    }

    @Test(arguments: ["(no mode)", "(nowhere)"])
    func `a common item removed from each common mode is in no mode, whatever its name`(name: String)
        async throws
    {
        let (result, fired) = try await onItsOwnThread {
            let (loop, fired) = (RunLoop.current, Shared(false))
            let timer = Timer(fireDate: .now) { _ in fired.value = true }
            loop.add(timer, forMode: .common)
            for mode in [RunLoop.Mode.default, .tracking] { loop.remove(timer, forMode: mode) }
            return (loop.run(in: RunLoop.Mode(name), until: .now), fired.value)
        }
        #expect(result == .finished)
        #expect(!fired)
    }

    @Test func `a new loop's common modes are the default and the tracking mode`() async throws {
        let modes = try await onItsOwnThread { RunLoop.current.modesThatAreCommon }
        #expect(modes == [.default, .tracking])
    }

    @Test func `each loop has common modes of its own`() async throws {
        let other = try RunLoopThread(name: "other")
        let modes = other.runLoop.performAndWait {
            RunLoop.current.addCommonMode(.custom)
            return RunLoop.current.modesThatAreCommon
        }
        #expect(modes == [.default, .tracking, .custom])
        #expect(try await onItsOwnThread { RunLoop.current.modesThatAreCommon } == [.default, .tracking])
        try await onItsOwnThread { other.stop() }
    }

    @Test func `running the common pseudo-mode runs nothing and calls no observer`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.common)
            loop.observe(in: .common) { trace("\($0)") }
            trace("\(loop.run(mode: .common, before: .distantFuture))")
            trace("\(loop.run(in: .common))")
        }
        #expect(trace == ["false", "finished"])
    }

    @Test func `the current mode is nil outside, the running mode inside, and restored after nesting`()
        async throws
    {
        let trace = try await traced { loop, trace in
            func note() { trace(loop.currentMode?.rawValue ?? "none") }
            loop.hold(.outer)
            loop.hold(.inner)
            loop.observe(.beforeTimers, in: .inner) { _ in note() }
            loop.observe(.beforeTimers, in: .outer) { _ in
                note()
                loop.poll(.inner)
                note()
            }
            note()
            loop.poll(.outer)
            note()
        }
        #expect(trace == ["none", "outer", "inner", "outer", "none"])
    }

    @Test func `items of the common modes see the mode that really runs`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.common)
            loop.observe(.beforeTimers, in: .common) { _ in trace(loop.currentMode?.rawValue ?? "none") }
            loop.poll(.tracking)
            loop.poll(.default)
        }
        #expect(trace == [RunLoop.Mode.tracking.rawValue, RunLoop.Mode.default.rawValue])
    }

    @Test func `the current mode can be read from another thread`() async throws {
        let loop = Answer<RunLoop>()
        let seen = Answer<RunLoop.Mode?>()
        async let running: Void = onItsOwnThread {
            let own = RunLoop.current
            own.hold(.custom)
            own.observe(.beforeTimers, in: .custom) { _ in
                loop.give(own)
                _ = seen.wait()
                own.stop()
            }
            own.run(in: .custom)
        }
        let mode = try await onItsOwnThread { loop.wait().currentMode }
        seen.give(mode)
        try await running
        #expect(mode == .custom)
    }

    @Test func `more than thirty-two modes are as good as a few`() async throws {
        let modes = (0..<200).map { RunLoop.Mode("one of many \($0)") }
        let trace = try await traced { loop, trace in
            for mode in modes { loop.perform(inModes: [mode]) { trace(mode.rawValue) } }
            loop.perform(inModes: modes) { trace("shared") }
            for mode in modes.reversed() { loop.poll(mode) }
        }
        #expect(trace == [modes[199].rawValue, "shared"] + modes.dropLast().reversed().map(\.rawValue))
    }
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
