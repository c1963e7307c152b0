import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct RunLoopCocoaTests {
    @Test func `date literals are not ambiguous with deadlines`() {
        #expect(!RunLoop.current.run(mode: .default, before: .distantFuture))
        RunLoop.current.run(until: .distantFuture)
        RunLoop.current.run(mode: .common, before: .distantPast)
        RunLoop.current.acceptInput(forMode: .default, before: .distantFuture)
        #expect(RunLoop.current.limitDate(forMode: .default) == nil)
    }

    @Test func `a loop does not return before its limit date`() {
        let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
        for limit in [Date(timeIntervalSinceNow: 0.01), Date().addingTimeInterval(0.01), Date() + 0.01] {
            RunLoop.current.run(until: limit)
            #expect(Date() >= limit)
            let next = limit.addingTimeInterval(0.005)
            #expect(RunLoop.current.run(mode: .default, before: next))
            #expect(Date() >= next)
        }
        timer.invalidate()
    }

    @Test func `a loop runs until a deadline`() {
        let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
        RunLoop.current.run(until: Deadline.now)
        RunLoop.current.run(until: .now.advanced(by: .milliseconds(1)))
        #expect(RunLoop.current.run(mode: .default, before: .now.advanced(by: .milliseconds(1))))
        timer.invalidate()
    }

    @Test func `the limit date is the earliest timer's fire date`() {
        let date = Date(timeIntervalSinceNow: 3600)
        let timer = Timer(fire: date, interval: 0, repeats: false) { _ in }
        RunLoop.current.add(timer, forMode: .default)
        RunLoop.current.add(
            Timer(fire: date + 60, interval: 0, repeats: false) { _ in }, forMode: .default)
        let limit = RunLoop.current.limitDate(forMode: .default)
        #expect(limit == date)
        #expect(RunLoop.current.limitDate(forMode: .default)!.timeIntervalSinceNow > 3000)
        timer.invalidate()
        #expect(RunLoop.current.limitDate(forMode: .default) == date + 60)
    }

    @Test func `a block is performed in its modes, with and without Cocoa's argument label`() {
        let (loop, ran) = (RunLoop.current, Shared<[String]>([]))
        loop.perform { ran.update { $0.append("default") } }
        loop.perform(inModes: [.common], block: { ran.update { $0.append("common") } })
        loop.perform(inModes: [.default]) { ran.update { $0.append("trailing") } }
        loop.perform(inModes: [RunLoop.Mode("other")]) { ran.update { $0.append("other") } }
        loop.run(mode: .default, before: .distantPast)
        #expect(ran.value == ["default", "common", "trailing"])
    }

    @Test func `the Swift 3 names denote the same modes`() async throws {
        let modes: [RunLoopMode] = [.defaultRunLoopMode, .commonModes, .UITrackingRunLoopMode]
        #expect(modes == [RunLoop.Mode.default, .common, .tracking])
        #expect(RunLoopMode.eventTrackingRunLoopMode == .eventTracking)
        #expect(RunLoopMode.modalPanelRunLoopMode == .modalPanel)
        #expect(RunLoop.Mode.default.rawValue == "kCFRunLoopDefaultMode")
        try await onItsOwnThread {
            #expect(!RunLoop.current.run(mode: RunLoopMode.defaultRunLoopMode, before: Date.distantFuture))
        }
    }
}
