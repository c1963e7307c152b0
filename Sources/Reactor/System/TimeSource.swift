import CReactorLinux
import Glibc
import Synchronization
package import SystemPackage

/// Moves the time of the threads of a test. ReactorTesting has the only one; a thread without one has the kernel's
/// time.
///
/// The clocks themselves are ``ReplacedClocks``.
package protocol TimeSource: AnyObject, Sendable {
    /// Replaces the time of the calling thread, which works for one with this time, until ``leaveThread()``.
    func enterThread()
    func leaveThread()

    /// The calling thread, which has this time, runs `loop` until ``loopEnded(_:)``.
    func loopBegan(_ loop: AnyObject)
    func loopEnded(_ loop: AnyObject)

    /// The calling thread's loop is about to wait until `time`.
    ///
    /// - Returns: When the kernel ends the wait, on its clock; `.min` for at once, `.max` for never.
    func willWait(until time: Int64, _ wait: LoopWait) -> Int64

    /// The calling thread's loop has waited. Called before the loop takes from the kernel what is ready: so either the loop
    /// is ready, or it is known not to wait.
    func didWait()

    /// The order in which to serve `count` items that have become ready at the same time: a permutation of their numbers.
    func order(of count: Int) -> [Int]

    /// Lets the time run as the kernel's does, while the thread waits without its loop, until ``endBlocking()``.
    func beginBlocking()
    func endBlocking()

    /// Records work that this thread has started on another thread. Until ``endWork()``, which any thread may call, the time
    /// runs as the kernel's does while the loop waits.
    func beginWork()
    func endWork()

    /// As ``beginWork()``, as long as `isRunning` returns true.
    func noteWork(while isRunning: @escaping @Sendable () -> Bool)

    /// The library's thread called `name` that has this time; `make` starts it, if there is none yet.
    func thread<Thread: AnyObject & Sendable>(
        named name: String, make: () throws(Errno) -> Thread
    ) throws(Errno) -> Thread

    /// The loop that stands for those of the library's own threads; nil for threads.
    var libraryLoop: AnyObject? { get }
    /// The network of the calling thread; nil for the kernel's.
    var network: (any Network)? { get }

    /// Arms `descriptor`, a timer on `clock`, which is the calling thread's: `timerfd_settime(2)`.
    func arm(_ descriptor: CInt, on clock: CInt, at time: Int64, every interval: Int64)
    /// How often it has fired since the last call: `read(2)`. `Errno.canceled` says that the clock was set; nil that the
    /// kernel has armed it.
    func takeFirings(of descriptor: CInt) throws(Errno) -> UInt64?
    func disarm(_ descriptor: CInt)
}

/// The time source of the calling thread; nil for the kernel's.
package var currentTimeSource: (any TimeSource)? { ReplacedClocks.current?.source }

/// The clocks of threads whose time is replaced. They begin with the kernel's time. The monotonic clock stands still, or runs
/// as the kernel's does.
package final class ReplacedClocks: Sendable {
    /// The monotonic time while it stands still; 0 while it runs.
    private let stoppedAt: Atomic<Int64>
    /// How far the running monotonic time is ahead of the kernel's.
    private let running = Atomic<Int64>(0)
    /// How far the other clocks are ahead of the monotonic time.
    private let wallClock: Atomic<Int64>
    private let bootTime: Atomic<Int64>
    private let reference = Mutex(Reference())
    private static let all = Mutex(All())

    private struct Reference {
        weak var source: (any TimeSource)?
    }

    private struct All {
        /// How many threads have another time than the kernel's.
        var threadCount = 0
        /// The clocks of the loops of such threads.
        var clocks: [ObjectIdentifier: ReplacedClocks] = [:]
    }

    package init() {
        let now = reactor_kernel_nanoseconds(CLOCK_MONOTONIC)
        stoppedAt = Atomic(now)
        wallClock = Atomic(reactor_kernel_nanoseconds(CLOCK_REALTIME) - now)
        bootTime = Atomic(reactor_kernel_nanoseconds(CLOCK_BOOTTIME) - now)
    }

    package var source: (any TimeSource)? { reference.withLock { $0.source } }

    /// The calling thread's; nil if its time is the kernel's.
    static var current: ReplacedClocks? {
        guard let pointer = unsafe reactor_thread_clocks() else { return nil }
        return unsafe CallbackContext.object(pointer)
    }

    /// Replaces the calling thread's time until ``leave()``, which is called on the same thread. The thread retains this.
    package func enter(for source: any TimeSource) {
        reference.withLock { $0.source = source }
        unsafe reactor_replace_clocks(CallbackContext.retain(self))
        Self.changeThreadCount(by: 1)
    }

    package func leave() {
        reactor_replace_clocks(nil)
        Self.changeThreadCount(by: -1)
        _ = unsafe CallbackContext.take(CallbackContext.address(of: self), as: ReplacedClocks.self)
    }

    private static func changeThreadCount(by change: Int) {
        all.withLock { all in
            all.threadCount += change
            reactor_set_diagnostics(UInt32(REACTOR_TIME_IS_REPLACED), all.threadCount > 0)
        }
    }

    /// Makes these the clocks of `loop`, the calling thread's, for other threads, until ``leave(_:)``.
    package func enter(_ loop: AnyObject) { Self.all.withLock { $0.clocks[ObjectIdentifier(loop)] = self } }

    package func leave(_ loop: AnyObject) { Self.all.withLock { $0.clocks[ObjectIdentifier(loop)] = nil } }

    /// The monotonic time of `loop`'s thread, in nanoseconds.
    static func now(of loop: AnyObject) -> Int64 {
        guard reactor_diagnostics_switches() & UInt32(REACTOR_TIME_IS_REPLACED) != 0,
            let clocks = all.withLock({ $0.clocks[ObjectIdentifier(loop)] })
        else { return reactor_kernel_nanoseconds(CLOCK_MONOTONIC) }
        return clocks.now
    }

    /// The monotonic time, in nanoseconds.
    package var now: Int64 {
        let now = stoppedAt.load(ordering: .sequentiallyConsistent)
        return now != 0 ? now : reactor_kernel_nanoseconds(CLOCK_MONOTONIC) + offset
    }

    /// How far the monotonic time is ahead of the kernel's while it runs.
    var offset: Int64 { running.load(ordering: .sequentiallyConsistent) }

    /// Lets the monotonic clock stand still at `time`.
    package func stop(at time: Int64) { stoppedAt.store(time, ordering: .sequentiallyConsistent) }

    /// Moves the monotonic clock on, whether it stands still or runs.
    package func skip(_ nanoseconds: Int64) {
        let time = stoppedAt.load(ordering: .sequentiallyConsistent)
        if time != 0 { return stop(at: time.addingSaturated(nanoseconds)) }
        running.store(offset.addingSaturated(nanoseconds), ordering: .sequentiallyConsistent)
    }

    /// Lets the monotonic clock run on from the time at which it stands.
    package func run() {
        let time = stoppedAt.load(ordering: .sequentiallyConsistent)
        guard time != 0 else { return }
        running.store(time - reactor_kernel_nanoseconds(CLOCK_MONOTONIC), ordering: .sequentiallyConsistent)
        stop(at: 0)
    }

    /// How far `clock` is ahead of the monotonic clock, in nanoseconds.
    package func lead(of clock: CInt) -> Int64 {
        let isWallClock = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE
        return isWallClock ? wallClock.load(ordering: .relaxed) : bootTime.load(ordering: .relaxed)
    }

    package func setLead(of clock: CInt, to lead: Int64) {
        let isWallClock = clock == CLOCK_REALTIME
        if isWallClock {
            wallClock.store(lead, ordering: .relaxed)
        } else {
            bootTime.store(lead, ordering: .relaxed)
        }
    }
}

/// What reactor_clock_nanoseconds returns on a thread whose time is replaced.
@c(reactor_replaced_nanoseconds)
func replacedNanoseconds(_ clocks: UnsafeMutableRawPointer?, _ clock: clockid_t) -> Int64 {
    let clocks = unsafe CallbackContext.object(clocks, as: ReplacedClocks.self)
    let isMonotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE
    return isMonotonic ? clocks.now : clocks.now + clocks.lead(of: clock)
}

/// A loop that is about to wait.
package struct LoopWait: Sendable {
    /// What it waits for, its own descriptors not included.
    package let descriptors: [CInt]
    private let readiness: @Sendable () -> Bool
    private let timer: CInt

    /// - Parameters:
    ///   - timer: The timerfd that ends the wait.
    ///   - isReady: Whether the wait would end at once.
    init(for descriptors: [CInt], timer: CInt, isReady: @escaping @Sendable () -> Bool) {
        (self.descriptors, self.timer, readiness) = (descriptors, timer, isReady)
    }

    /// Whether the wait would end at once.
    package var isReady: Bool { readiness() }

    /// Ends the wait of another thread's loop.
    package func end() { _ = reactor_timerfd_set(timer, 1, 0, false) }
}
