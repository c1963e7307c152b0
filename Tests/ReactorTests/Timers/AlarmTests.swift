#if DEBUG

import ReactorTestSupport
import ReactorTesting
import Synchronization
import Testing

@testable import Reactor

private final class RingCount: Sendable {
    private let value = Atomic(0)

    var count: Int { value.load(ordering: .relaxed) }

    func add() { value.add(1, ordering: .relaxed) }
}

@Suite(.runLoop) struct AlarmTests {
    private let loop = RunLoop.current
    private let rings = RingCount()

    private func makeAlarm(after timeout: Duration? = .seconds(10)) -> Alarm {
        Alarm(on: loop, after: timeout) { [rings] in rings.add() }
    }

    @Test func `an alarm rings once, after its timeout`() {
        withVirtualTime { time in
            let alarm = makeAlarm()
            alarm.restart()
            time.advance(by: .seconds(9))
            #expect(rings.count == 0)
            time.advance(by: .seconds(1))
            #expect(rings.count == 1 && alarm.timer == nil)
            time.advance(by: .seconds(100))
            #expect(rings.count == 1)
        }
    }

    @Test func `a restart moves the ringing without moving the timer`() {
        withVirtualTime { time in
            let alarm = makeAlarm()
            alarm.restart()
            let date = alarm.timer?.fireDate
            time.advance(by: .seconds(6))
            alarm.restart()
            #expect(alarm.timer?.fireDate == date)
            time.advance(by: .seconds(9))
            #expect(rings.count == 0)
            time.advance(by: .seconds(1))
            #expect(rings.count == 1)
        }
    }

    @Test func `a shorter timeout counts from the last restart`() {
        withVirtualTime { time in
            let alarm = makeAlarm()
            alarm.restart()
            time.advance(by: .seconds(2))
            alarm.setTimeout(.seconds(3))
            time.advance(by: .seconds(1))
            #expect(rings.count == 1)
        }
    }

    @Test func `an alarm that is stopped, ended or without a timeout does not ring`() {
        withVirtualTime { time in
            let alarms = [makeAlarm(), makeAlarm(), makeAlarm(), makeAlarm(after: nil)]
            for alarm in alarms { alarm.restart() }
            alarms[0].stop()
            alarms[1].end()
            alarms[2].setTimeout(nil)
            #expect(alarms.dropFirst().allSatisfy { $0.timer == nil })
            alarms[1].restart()
            time.advance(by: .seconds(100))
            #expect(rings.count == 0 && alarms[0].timer == nil)
            alarms[0].restart()
            time.advance(by: .seconds(10))
            #expect(rings.count == 1)
        }
    }

    @Test func `restarts on another thread are not missed while the alarm rings`() throws {
        for _ in 0..<200 {
            let alarm = makeAlarm(after: .nanoseconds(1))
            let before = rings.count
            onThreads(1) { _ in for _ in 0..<5 { alarm.restart() } }
            loop.serve { rings.count > before && alarm.timer == nil && alarm.isStopped }
        }
    }
}

#endif
