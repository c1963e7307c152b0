import CReactorLinux
import Glibc
import SystemPackage

/// What ends the waits of one loop: an event counter that other threads add to, and an alarm.
///
/// One for all modes of a loop, as descriptors are scarce. The pollers of the modes watch both edge-triggered, so that
/// neither has to be read to be quiet again; only when another poller than the last waits, what woke that one is
/// cleared.
///
/// A handle: the loop's core makes it, and frees it after the pollers that watch it.
@safe
struct Waker {
    @unsafe private struct Contents: ~Copyable {
        let counter: OwnedDescriptor
        let alarm: OwnedDescriptor
        /// When the alarm rings; `.max` when it is not set, or has rung.
        var alarmTime = Int64.max
        /// The number of the poller that waited last; none has this one.
        var lastWaiting = Int32.min
    }

    private let contents: UnsafeMutablePointer<Contents>

    init() throws(Errno) {
        let counter = try OwnedDescriptor.eventCounter()
        let alarm = try OwnedDescriptor.alarm()
        unsafe contents = .allocate(capacity: 1)
        unsafe contents.initialize(to: Contents(counter: counter, alarm: alarm))
    }

    /// Ends what this and all its copies stand for.
    func free() {
        unsafe contents.deinitialize(count: 1)
        unsafe contents.deallocate()
    }

    /// The event counter (eventfd(2)) that ends a wait when one is added to it.
    var counter: CInt { unsafe contents.pointee.counter.number }

    var alarm: CInt { unsafe contents.pointee.alarm.number }

    /// Has the alarm ring at `time`; never for `.max`.
    @inline(__always)
    func setAlarm(_ time: Int64) {
        if unsafe time != contents.pointee.alarmTime { armAlarm(time) }
    }

    /// Arming is dear on virtual machines (from 0.6 to 15 µs), so it happens only when the time is another.
    @inline(never)
    private func armAlarm(_ time: Int64) {
        unsafe contents.pointee.alarmTime = time
        _ = unsafe reactor_timerfd_arm(contents.pointee.alarm.number, time == .max ? 0 : max(time, 1))
    }

    func alarmRang() { unsafe contents.pointee.alarmTime = .max }

    /// Makes sure that the poller with this number is not woken by what has woken another. To be called before other
    /// threads are told to add to the counter.
    @inline(__always)
    func prepare(for poller: Int32) {
        if unsafe contents.pointee.lastWaiting != poller { clear(for: poller) }
    }

    /// An edge that a poller has not seen yet is not reported when there is nothing to read any more. Setting the alarm,
    /// to whatever time, does that for the alarm.
    @inline(never)
    private func clear(for poller: Int32) {
        unsafe contents.pointee.lastWaiting = poller
        unsafe contents.pointee.alarmTime = .min
        var count: UInt64 = 0
        _ = unsafe read(contents.pointee.counter.number, &count, MemoryLayout<UInt64>.size)
    }
}
