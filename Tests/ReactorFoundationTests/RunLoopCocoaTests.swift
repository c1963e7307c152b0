import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct RunLoopCocoaTests {
    @Test func `the names denote Reactor's types, except operations`() {
        #expect(RunLoop.self == Reactor.RunLoop.self && Timer.self == Reactor.Timer.self)
        #expect(
            InputStream.self == Reactor.InputStream.self && OutputStream.self == Reactor.OutputStream.self)
        #expect((any StreamDelegate).self == (any Reactor.StreamDelegate).self)
        #expect(ObjectIdentifier(SocketPort.self) != ObjectIdentifier(Foundation.SocketPort.self))
        #expect(ObjectIdentifier(PortMessage.self) != ObjectIdentifier(Foundation.PortMessage.self))
        #expect(
            ObjectIdentifier(NotificationQueue.self) != ObjectIdentifier(Foundation.NotificationQueue.self))
        #expect(ObjectIdentifier(Operation.self) == ObjectIdentifier(Foundation.Operation.self))
        let modes: [RunLoopMode] = [.defaultRunLoopMode, .commonModes, .UITrackingRunLoopMode]
        #expect(modes == [RunLoop.Mode.default, .common, .tracking])
        #expect(RunLoopMode.eventTrackingRunLoopMode == .eventTracking)
        #expect(RunLoopMode.modalPanelRunLoopMode == .modalPanel)
    }

    @Test func `date literals are not ambiguous with deadlines`() {
        #expect(!RunLoop.current.run(mode: .default, before: .distantFuture))
        RunLoop.current.run(until: .distantFuture)
        RunLoop.current.run(mode: .common, before: .distantPast)
        RunLoop.current.acceptInput(forMode: .default, before: .distantFuture)
        #expect(RunLoop.current.limitDate(forMode: .default) == nil)
    }

    @Test func `a loop does not return before its limit, which is a date or a deadline`() {
        let timer = Timer.scheduledTimer(withTimeInterval: 3600, repeats: true) { _ in }
        let limit = Date() + 0.003
        RunLoop.current.run(until: limit)
        #expect(Date() >= limit)
        let next = limit.addingTimeInterval(0.003)
        #expect(RunLoop.current.run(mode: .default, before: next) && Date() >= next)
        let deadline = Deadline.now + .milliseconds(1)
        RunLoop.current.run(until: deadline)
        #expect(Deadline.now >= deadline)
        timer.invalidate()
    }

    @Test func `the limit date is the earliest timer's fire date`() {
        let date = Date(timeIntervalSinceNow: 3600)
        let timer = Timer(fire: date, interval: 0, repeats: false) { _ in }
        RunLoop.current.add(timer, forMode: .default)
        RunLoop.current.add(Timer(fire: date + 60, interval: 0, repeats: false) { _ in }, forMode: .default)
        let limit = RunLoop.current.limitDate(forMode: .default)
        #expect(limit == date)
        timer.invalidate()
        #expect(RunLoop.current.limitDate(forMode: .default) == date + 60)
    }

    @Test func `a block is performed in its modes, with and without Cocoa's argument label`() {
        let (loop, ran) = (RunLoop.current, Trace())
        loop.perform { ran("default") }
        loop.perform(inModes: [.common], block: { ran("common") })
        loop.perform(inModes: [.default]) { ran("trailing") }
        loop.perform(inModes: [RunLoop.Mode("other")]) { ran("other") }
        loop.run(mode: .default, before: .distantPast)
        #expect(ran.all == ["default", "common", "trailing"])
    }
}

@Suite(.runLoop) struct DeadlineDateTests {
    @Test(arguments: [-86_400, -1, -0.25, 0, 1e-6, 0.1, 1, 3600, 1e9] as [TimeInterval])
    func `a date survives conversion to a deadline and back`(distance: TimeInterval) {
        let date = Date(timeIntervalSinceNow: distance)
        #expect(Date(Deadline(date)) == date)
    }

    @Test func `distant dates and dates out of range convert to distant deadlines`() {
        #expect(Date(Deadline.distantFuture) == .distantFuture && Date(Deadline.distantPast) == .distantPast)
        for seconds in [2e10, 1e12, 1e300, .infinity, .greatestFiniteMagnitude] as [TimeInterval] {
            #expect(Deadline(Date(timeIntervalSinceReferenceDate: seconds)) == .distantFuture)
            #expect(Deadline(Date(timeIntervalSinceReferenceDate: -seconds)) == .distantPast)
        }
        #expect(Deadline(.distantFuture) == .distantFuture && Deadline(.distantPast) == .distantPast)
    }

    @Test func `a deadline never passes before its date`() {
        for _ in 0..<Depth.of(full: 200, quick: 20) {
            let date = Date(timeIntervalSinceNow: .random(in: 0...0.000_5))
            let deadline = Deadline(date)
            while Deadline.now < deadline {}
            #expect(Date() >= date)
        }
    }

    @Test(arguments: [true, false])
    func `a date or an interval that is NaN traps`(isDate: Bool) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [isDate] in
            if isDate { _ = Deadline(Date(timeIntervalSinceReferenceDate: .nan)) }
            _ = Timer(timeInterval: .nan, repeats: true) { _ in }
        }
        #expect(result.message.contains("NaN"))
        #expect(result.message.contains(isDate ? "date" : "interval"))
    }
}

@Suite(.runLoop) struct TimerCocoaTests {
    @Test func `a timer's properties return what was set`() {
        let date = Date(timeIntervalSinceNow: 100)
        let timer = Timer(fire: date, interval: 0.3, repeats: true) { _ in }
        #expect(timer.fireDate == date && timer.timeInterval == 0.3 && timer.isValid)
        #expect(timer.tolerance == 0 && timer.userInfo == nil)
        for (tolerance, kept) in [(0.1, 0.1), (1, 0.15), (-1, 0)] as [(TimeInterval, TimeInterval)] {
            timer.tolerance = tolerance
            #expect(timer.tolerance == kept)
        }
        let later = date.addingTimeInterval(50)
        timer.fireDate = later
        #expect(timer.fireDate == later)
        timer.fireDate += 10
        #expect(timer.fireDate == later + 10)
        // Foundation on Linux forgets the date of an invalid timer.
        timer.invalidate()
        timer.fireDate = date
        #expect(timer.fireDate == later + 10 && !timer.isValid)
    }

    @Test func `a timer created without arguments is invalid`() {
        let timer = Timer()
        #expect(!timer.isValid)
        timer.invalidate()
        timer.fire()
    }

    @Test
    func `an interval is returned exactly, within its range, and is zero for a timer that does not repeat`() {
        for interval in [0.001, 0.05, 0.1, 0.25, 0.3, 0.57, 1, 1.1, 2.3, 60, 86_400.7] as [TimeInterval] {
            #expect(Timer(timeInterval: interval, repeats: true) { _ in }.timeInterval == interval)
        }
        for interval in [.infinity, 1e300, .greatestFiniteMagnitude] as [TimeInterval] {
            let timer = Timer(timeInterval: interval, repeats: true) { _ in }
            #expect(timer.timeInterval > 9e9 && timer.fireDate == .distantFuture)
        }
        for interval in [-.infinity, -1e300, -1, 0] as [TimeInterval] {
            #expect(Timer(timeInterval: interval, repeats: true) { _ in }.timeInterval == 0.000_1)
        }
        #expect(Timer(fire: Date(), interval: 5, repeats: false) { _ in }.timeInterval == 0)
        #expect(Timer(timeInterval: 5, repeats: false) { _ in }.timeInterval == 0)
    }
}
