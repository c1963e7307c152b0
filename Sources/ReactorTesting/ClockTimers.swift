import CReactorLinux
import Glibc
import Reactor
import SystemPackage

/// The kernel's timers (timerfd) on the wall clock and on the time since boot, which virtual time fires in the kernel's place:
/// it makes their descriptors readable.
struct ClockTimers {
    private struct VirtualTimer {
        let clock: CInt
        /// When it fires next, on its clock; `.max` for never.
        var next: Int64
        let interval: Int64
        var firingCount: UInt64 = 0
        var clockWasSet = false

        /// When it fires next, on the monotonic clock.
        func date(_ clocks: borrowing ReplacedClocks) -> Int64 {
            next == .max ? .max : next - clocks.lead(of: clock)
        }
    }

    private var timers: [CInt: VirtualTimer] = [:]

    func contains(_ descriptor: CInt) -> Bool { timers[descriptor] != nil }

    /// When the first one fires, on the monotonic clock; `.max` for never.
    func nextDate(_ clocks: borrowing ReplacedClocks) -> Int64 {
        var next = Int64.max
        for timer in timers.values { next = min(next, timer.date(clocks)) }
        return next
    }

    mutating func arm(
        _ descriptor: CInt, on clock: CInt, at date: Int64, every interval: Int64,
        _ clocks: borrowing ReplacedClocks
    ) {
        _ = reactor_timerfd_set(descriptor, 0, 0, false)
        timers[descriptor] = VirtualTimer(clock: clock, next: date == 0 ? .max : date, interval: interval)
        fire(clocks)
    }

    mutating func disarm(_ descriptor: CInt) { timers[descriptor] = nil }

    /// How often a timer has fired since this was last asked; nil if it was armed before the test had its time.
    ///
    /// - Throws: `Errno.canceled` if its clock was set.
    mutating func takeFirings(of descriptor: CInt) throws(Errno) -> UInt64? {
        guard let timer = timers[descriptor] else { return nil }
        _ = reactor_timerfd_set(descriptor, 0, 0, false)
        timers[descriptor]?.firingCount = 0
        timers[descriptor]?.clockWasSet = false
        if timer.clockWasSet { throw .canceled }
        return timer.firingCount
    }

    /// Signals the descriptors of the timers whose dates have come.
    mutating func fire(_ clocks: borrowing ReplacedClocks) {
        let now = clocks.now
        for (descriptor, var timer) in timers {
            let late = now - timer.date(clocks)
            guard late >= 0 else { continue }
            let count = timer.interval > 0 ? late / timer.interval + 1 : 1
            timer.firingCount += UInt64(count)
            timer.next = timer.interval > 0 ? timer.next + count * timer.interval : .max
            timers[descriptor] = timer
            _ = reactor_timerfd_set(descriptor, 1, 0, false)
        }
    }

    /// Signals the timers that are notified when the wall clock is set.
    mutating func noteClockSet(_ clocks: borrowing ReplacedClocks) {
        fire(clocks)
        for (descriptor, timer) in timers where timer.clock == CLOCK_REALTIME {
            timers[descriptor]?.clockWasSet = true
            _ = reactor_timerfd_set(descriptor, 1, 0, false)
        }
    }

    /// Gives the timers back to the kernel, whose clocks may have another time. It counts the firings again that were not
    /// taken.
    mutating func armInKernel(_ clocks: borrowing ReplacedClocks) {
        for (descriptor, timer) in timers {
            let isWallClock = timer.clock == CLOCK_REALTIME
            var date: Int64 = isWallClock ? .max : 0
            if timer.next != .max {
                let kernelTime = reactor_kernel_nanoseconds(timer.clock)
                let lead = isWallClock ? 0 : clocks.now + clocks.lead(of: timer.clock) - kernelTime
                date = max(1, timer.next - Int64(timer.firingCount) * timer.interval - lead)
            } else if timer.firingCount > 0 {
                continue  // The last firing: its descriptor stays readable.
            }
            _ = reactor_timerfd_set(descriptor, date, timer.interval, isWallClock)
        }
        timers = [:]
    }
}
