import CReactorLinux
import Glibc
package import SystemPackage

/// What moves the time of the threads of a test. ReactorTesting has the only one; a thread without one has the kernel's
/// time.
///
/// The clocks themselves are a `reactor_clock`, which ``enter(_:)`` connects to the thread.
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

    /// The calling thread's loop has waited.
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

    /// Arms `descriptor`, a timer on `clock`, which is the calling thread's: `timerfd_settime(2)`.
    func arm(_ descriptor: CInt, on clock: CInt, at time: Int64, every interval: Int64)
    /// How often it has fired since the last call: `read(2)`. `Errno.canceled` says that the clock was set; nil that the
    /// kernel has armed it.
    func takeFirings(of descriptor: CInt) throws(Errno) -> UInt64?
    func disarm(_ descriptor: CInt)
}

/// What replaces the calling thread's time; nil for the kernel's.
@inline(__always)
package var currentTimeSource: (any TimeSource)? {
    guard let pointer = unsafe reactor_time_source() else { return nil }
    return unsafe Unmanaged<ReplacedClocks>.fromOpaque(pointer).takeUnretainedValue().source
}

/// The clocks of threads whose time is replaced. The monotonic clock stands still, or runs as the kernel's does.
@safe
package final class ReplacedClocks: Sendable {
    /// `nonisolated(unsafe)`: it is set once, its memory lives as long as this object, and the C functions access it
    /// atomically.
    private nonisolated(unsafe) let clocks: OpaquePointer
    private let reference = Mutex(Reference())

    private struct Reference {
        weak var source: (any TimeSource)?
    }

    package init() { unsafe clocks = reactor_clock_make() }

    deinit { unsafe reactor_clock_free(clocks) }

    package var source: (any TimeSource)? { reference.withLock { $0.source } }

    /// Replaces the calling thread's time until ``leave()``, which is called on the same thread. The thread retains this.
    package func enter(for source: any TimeSource) {
        reference.withLock { $0.source = source }
        unsafe reactor_replace_time(clocks, Unmanaged.passRetained(self).toOpaque())
    }

    package func leave() {
        reactor_replace_time(nil, nil)
        unsafe Unmanaged.passUnretained(self).release()
    }

    /// The monotonic time, in nanoseconds.
    package var now: Int64 { unsafe reactor_clock_now(clocks) }

    /// Lets the monotonic clock stand still at `time`.
    package func stop(at time: Int64) { unsafe reactor_clock_stop(clocks, time) }

    /// Lets the monotonic clock run on from the time at which it stands.
    package func run() { unsafe reactor_clock_run(clocks) }

    /// How far `clock` is ahead of the monotonic clock, in nanoseconds.
    package func lead(of clock: CInt) -> Int64 {
        unsafe reactor_clock_lead(clocks, clock)
    }

    package func setLead(of clock: CInt, to lead: Int64) {
        unsafe reactor_clock_set_lead(clocks, clock, lead)
    }
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
    package func end() { _ = reactor_timerfd_arm(timer, 1) }
}
