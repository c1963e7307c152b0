import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerCocoaTests {
    @Test func `a timer's properties return what was set`() {
        let date = Date(timeIntervalSinceNow: 100)
        let timer = Timer(fire: date, interval: 0.3, repeats: true) { _ in }
        #expect(timer.fireDate == date && timer.timeInterval == 0.3 && timer.isValid)
        #expect(timer.tolerance == 0 && timer.userInfo == nil)
        timer.tolerance = 0.1
        #expect(timer.tolerance == 0.1)
        timer.tolerance = 1
        #expect(timer.tolerance == 0.15)
        timer.tolerance = -1
        #expect(timer.tolerance == 0)
        let later = date.addingTimeInterval(50)
        timer.fireDate = later
        #expect(timer.fireDate == later)
        timer.fireDate += 10
        #expect(timer.fireDate == later + 10 && timer.fireDate.timeIntervalSinceNow > 100)
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

    @Test func `the interval of a timer that does not repeat is zero`() {
        #expect(Timer(fire: Date(), interval: 5, repeats: false) { _ in }.timeInterval == 0)
        #expect(Timer(timeInterval: 5, repeats: false) { _ in }.timeInterval == 0)
    }

    @Test(arguments: [0.001, 0.05, 0.1, 0.25, 0.3, 0.57, 1, 1.1, 2.3, 60, 86_400.7])
    func `an interval is returned exactly`(interval: TimeInterval) {
        #expect(Timer(timeInterval: interval, repeats: true) { _ in }.timeInterval == interval)
    }

    @Test func `intervals out of range are clamped`() {
        for interval in [.infinity, 1e300, .greatestFiniteMagnitude] as [TimeInterval] {
            let timer = Timer(timeInterval: interval, repeats: true) { _ in }
            #expect(timer.timeInterval > 9e9 && timer.fireDate == .distantFuture)
        }
        for interval in [-.infinity, -1e300, -1] as [TimeInterval] {
            #expect(Timer(timeInterval: interval, repeats: true) { _ in }.timeInterval == 0.000_1)
        }
    }

    @Test func `a timer in the distant future fires only after its date is changed`() {
        let fired = Shared(0)
        let timer = Timer(fire: .distantFuture, interval: 0, repeats: false) { _ in
            fired.update { $0 += 1 }
        }
        #expect(timer.fireDate == .distantFuture)
        RunLoop.current.add(timer, forMode: .default)
        RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.002))
        #expect(fired.value == 0)
        timer.fireDate = Date()
        RunLoop.current.run(mode: .default, before: .distantFuture)
        #expect(fired.value == 1 && !timer.isValid)
    }

    @Test func `a scheduled timer repeats in the default mode of the calling thread's loop`() {
        let fired = Shared<[Date]>([])
        let start = Date()
        let timer = Timer.scheduledTimer(withTimeInterval: 0.002, repeats: true) { timer in
            fired.update { $0.append(Date()) }
            if fired.value.count == 3 { timer.invalidate() }
        }
        #expect(RunLoop.current.contains(timer, forMode: .default))
        while timer.isValid, RunLoop.current.run(mode: .default, before: .distantFuture) {}
        #expect(fired.value.count == 3)
        for (index, date) in fired.value.enumerated() {
            #expect(date.timeIntervalSince(start) >= 0.002 * Double(index + 1) - 1e-6)
        }
    }
}
