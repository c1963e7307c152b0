import CReactorLinux
import SystemPackage

/// What ends the waits of one loop: an event counter that other threads add to, and an alarm.
///
/// One for all modes of a loop, as descriptors are scarce. The pollers of the modes watch both edge-triggered, so that
/// neither has to be read to be quiet again; only when another poller than the last waits, what woke that one is
/// cleared.
final class Waker {
    private let ownedCounter: OwnedDescriptor
    private let ownedAlarm: OwnedDescriptor
    /// When the alarm rings; `.max` when it is not set, or has rung.
    private var alarmTime = Int64.max
    /// The number of the poller that waited last; none has this one.
    private var lastWaiting = Int32.min

    init() throws(Errno) {
        ownedCounter = try .eventCounter()
        ownedAlarm = try .alarm()
    }

    /// The event counter (eventfd(2)) that ends a wait when one is added to it.
    var counter: CInt { ownedCounter.number }

    var alarm: CInt { ownedAlarm.number }

    /// Has the alarm ring at `time`; never for `.max`.
    @inline(__always)
    func setAlarm(_ time: Int64) {
        if time != alarmTime { armAlarm(time) }
    }

    /// Arming is dear on virtual machines (from 0.6 to 15 µs), so it happens only when the time is another.
    @inline(never)
    private func armAlarm(_ time: Int64) {
        alarmTime = time
        _ = reactor_timerfd_arm(alarm, time == .max ? 0 : max(time, 1))
    }

    func alarmRang() { alarmTime = .max }

    /// Makes sure that the poller with this number is not woken by what has woken another. To be called before other
    /// threads are told to add to the counter.
    @inline(__always)
    func prepare(for poller: Int32) {
        if lastWaiting != poller { clear(for: poller) }
    }

    /// An edge that a poller has not seen yet is not reported when there is nothing to read any more. Setting the alarm,
    /// to whatever time, does that for the alarm.
    @inline(never)
    private func clear(for poller: Int32) {
        (lastWaiting, alarmTime) = (poller, .min)
        _ = takeCount(ofEventCounter: counter)
    }
}
