import Glibc
public import Reactor

/// A virtual clock for a test: it advances when the test advances it, or when every loop waits.
///
/// The clock stands still while code runs. When all loops with this time have nothing to serve and wait, it jumps to the
/// first date that one of them waits for. Waiting for timers takes no real time. Waiting for real descriptors does; see below.
///
/// ```swift
/// @Test func `a timer fires every thirty seconds`() {
///     withVirtualTime { time in
///         var count = 0
///         let timer = Timer.scheduled(every: .seconds(30)) { _ in count += 1 }
///         time.advance(by: .seconds(95))
///         #expect(count == 3)
///         timer.invalidate()
///     }
/// }
/// ```
///
/// It applies to everything of the library that waits for time, on the thread that calls `withVirtualTime` and on threads that
/// it starts inside (`RunLoopThread`): timers, `ClockTimer`, `Deadline.now`, sleeps on a loop's clock, and the timeouts of
/// connections, listeners and HTTP transfers. A dispatch queue's thread has it while it delivers a stream's events or
/// processes a hand-off that these threads have begun. Other threads, and other clocks, such as `ContinuousClock` and `Date`,
/// keep real time.
///
/// A task that waits on a loop waits in that loop's time, from any thread: its sleep on the loop's clock, and the `timeout:` of
/// its call. Off the loop's thread, as in `Task.detached`, `Deadline.now` is the kernel's: read `loop.clock().now`. A
/// connection that such a task opens has its timeouts in the kernel's time, and so fires a `ClockTimer` that it makes.
///
/// ## What is real
///
/// Descriptors are real. The clock does not jump while one is ready, while another thread works for the loop (a hand-off, a
/// file, a name to be resolved), or while a child process runs that the test has started: then it runs as
/// the real one does. Before a jump, a loop that waits for a descriptor other than those of ``TestConnection`` gives its peers
/// 20 ms of real time.
///
/// A task may continue on any thread. While tasks wait, the clock jumps when no thread of the process runs, apart from those of
/// other tests with ``RunLoopTrait``, and the concurrency pool has a free thread: then no task runs or is queued, also on a
/// dispatch queue. That takes less than a millisecond, or 20 ms where the kernel does not report which threads run (`/proc`).
/// Threads that keep running, such as those of other code, delay a jump by some 40 ms, and a pool whose threads are all
/// busy by some 500 ms. The clock does not wait for a task that waits for real time (`Task.sleep`, `asyncAfter` of a queue)
/// or is blocked in a system call.
///
/// A test whose peers need longer, or whose tasks wait in real time, holds the clock: ``hold()``.
///
/// A blocking call, such as `OutputStream.flush(timeout:)`, lets the clock run in real time until it returns.
///
/// ## Before and after
///
/// Timers that are on the loop before the call fire in virtual time; timeouts of streams, and a `ClockTimer`, that were set
/// before keep the kernel's time. Afterwards the thread has the kernel's time again: timers that are left fire as much later as
/// the clock has moved, and a `ClockTimer` at its date. A `RunLoopThread` that the test has not stopped keeps its time, which
/// runs as the kernel's does from then on.
public final class VirtualTime: Sendable {
    let domain: TimeDomain

    init(_ domain: TimeDomain) { self.domain = domain }

    /// A descriptor that is never read is always ready, and a timer may set itself to the present again and again.
    private static let maximumPassCount = 10_000

    /// The loop of the test's thread, for asynchronous tests.
    public var loop: RunLoop { domain.loop }

    /// The present moment: what `Deadline.now` is on the test's thread.
    public var now: Deadline { Deadline(uptimeNanoseconds: domain.clocks.now) }

    /// Moves the clock by `duration`, and meanwhile runs the loop: timers fire at their dates, in order, and descriptors
    /// are served in between. Then, at the last date, the loop runs until nothing is due or ready, for at most 10,000 passes.
    /// While another thread's loop is busy it waits for that, without a limit. A callback that stops the loop does not end
    /// this. In a suite with the trait `runLoop` it ends early once the test has exceeded its time limit.
    ///
    /// - Parameters:
    ///   - duration: How far: not negative, and less than to `Deadline.distantFuture`. Zero serves what is due or ready now.
    ///   - mode: The mode to run the loop in; not `RunLoop.Mode.common`.
    /// - Precondition: Called on the thread of `withVirtualTime`.
    @available(*, noasync, message: "await advance(by:)")
    public func advance(by duration: Duration, inMode mode: RunLoop.Mode = .default) {
        precondition(duration >= .zero, "VirtualTime.advance(by:) cannot move the clock back.")
        requireRun(in: mode)
        let end = now + duration
        precondition(end < .distantFuture, "VirtualTime.advance(by:) cannot reach the end of the clock.")
        // In an empty mode the loop would not wait.
        let last = Timer(fireDate: end) { _ in }
        domain.loop.add(last, forMode: mode)
        while now < end, !TestScope.isOverdue { domain.loop.run(in: mode, until: end) }
        last.invalidate()
        serveWhatIsReady(inMode: mode)
    }

    /// Runs the loop until nothing is due or ready, for at most 10,000 passes.
    func serveWhatIsReady(inMode mode: RunLoop.Mode) {
        let end = now
        var passCount = 0
        while passCount < Self.maximumPassCount, !TestScope.isOverdue {
            let (othersWait, callCount) = (domain.othersWait, domain.loop.timersAndBlocksCalled)
            let result = domain.loop.run(in: mode, until: end, returnAfterSourceHandled: true)
            let hasCalled = domain.loop.timersAndBlocksCalled > callCount
            if domain.serveLibraryLoop() || result == .handledSource || result == .stopped || hasCalled {
                passCount += 1
            } else if othersWait {
                break
            } else {
                // Other threads do what is due for them.
                _ = poll(nil, 0, 1)
            }
        }
    }

    /// Suspends the task for `duration` of virtual time.
    ///
    /// - Throws: `CancellationError` when the task is cancelled.
    nonisolated(nonsending) public func advance(by duration: Duration) async throws {
        domain.requireNotEnded()
        try await domain.loop.clock().sleep(for: duration)
    }

    /// Moves the clock by `duration` without running the loop, as a slow callback does: what has become due is served late.
    ///
    /// The loops of other threads with this time serve what is due for them. May be called from any of these threads.
    public func skip(_ duration: Duration) {
        domain.requireNotEnded()
        precondition(duration >= .zero, "VirtualTime.skip(_:) cannot move the clock back.")
        domain.skip(duration)
    }

    /// Runs the loop until nothing is ready, and nothing is scheduled in the modes that run; a nested run ends, too, if nothing
    /// is scheduled for it. The clock moves to the last timer's date.
    ///
    /// Does not return while there is a repeating timer, unless the test exceeds the time limit of the trait `runLoop`.
    ///
    /// - Parameter mode: The mode to run the loop in; not `RunLoop.Mode.common`.
    /// - Precondition: Called on the thread of `withVirtualTime`.
    @available(*, noasync, message: "await the work itself")
    public func runUntilIdle(inMode mode: RunLoop.Mode = .default) {
        requireRun(in: mode)
        // An empty mode would not run.
        let source = RunLoop.Source {}
        domain.loop.add(source, forMode: mode)
        defer { source.invalidate() }
        domain.beginStoppingWhenIdle()
        while !domain.hasBecomeIdle, !TestScope.isOverdue { domain.loop.run(in: mode) }
        domain.endStoppingWhenIdle()
    }

    /// Requires that the calling thread can run the loop in `mode`: in the common modes it would return at once.
    private func requireRun(in mode: RunLoop.Mode) {
        domain.requireNotEnded()
        precondition(
            domain.loop.isCurrent,
            "VirtualTime runs the loop on the thread that called withVirtualTime, and on no other.")
        precondition(
            mode != .common,
            "VirtualTime cannot run the loop in RunLoop.Mode.common: name one of the common modes.")
    }

    /// Lets the clock run in real time while the loops wait, instead of jumping, until the result is released or its
    /// ``Hold/end()`` is called.
    ///
    /// May be called from any thread.
    public func hold() -> Hold { Hold(domain) }

    /// Keeps the clock from jumping while it exists.
    public final class Hold: Sendable {
        private let domain: Mutex<TimeDomain?>

        init(_ domain: TimeDomain) {
            self.domain = Mutex(domain)
            domain.beginWork()
        }

        deinit { end() }

        /// Ends the hold. Further calls do nothing.
        public func end() {
            let domain = domain.withLock { $0.take() }
            domain?.endWork()
        }
    }

    // MARK: Other clocks

    /// The time of the wall clock. Setting it moves no timer on the monotonic clock, and
    /// delivers `.clockWasSet` to each `ClockTimer` on the wall clock. Any thread.
    public var wallClock: ClockTimer.Instant {
        get { .init(sinceEpoch: .nanoseconds(domain.clocks.now + domain.clocks.lead(of: CLOCK_REALTIME))) }
        set {
            domain.requireNotEnded()
            domain.setWallClock(to: newValue.sinceEpoch)
        }
    }

    /// Lets the machine sleep for `duration`: the wall clock and the time since boot move, the monotonic clock does not. Any
    /// thread.
    public func suspendMachine(for duration: Duration) {
        domain.requireNotEnded()
        precondition(duration >= .zero, "VirtualTime.suspendMachine(for:) cannot move the clocks back.")
        domain.suspend(for: duration)
    }
}

/// Calls `body` with virtual time on the calling thread; see ``VirtualTime``.
///
/// - Parameters:
///   - seed: Determines the order in which descriptors and streams are served that are ready at the same time; see
///     ``seeds(_:)``. With nil it is the kernel's order.
///   - body: The test.
/// - Precondition: Not called inside `withVirtualTime`, nor in a task that was made inside. On the main actor, a call while
///   another test has the main thread's virtual time uses that, whatever its seed.
@available(
    *, noasync, message: "await withVirtualTime, in a suite with the trait runLoop or on an actor of a loop"
)
public func withVirtualTime<Result>(
    seed: UInt64? = nil, _ body: (VirtualTime) throws -> Result
) rethrows -> Result {
    if let other = TimeDomain.ofAnotherTask { return try body(VirtualTime(other)) }
    let domain = TimeDomain.enter(seed: seed, servesTask: false)
    defer { domain.leave() }
    return try TimeDomain.$ofTask.withValue(domain) { try body(VirtualTime(domain)) }
}

/// Calls `body` with virtual time on the calling thread; see ``VirtualTime``.
///
/// The task has to stay on one thread whose loop runs while the task is suspended: that of a test in a suite with the trait
/// `runLoop`, the main actor, or an actor whose executor is a loop's.
///
/// On an actor that several tests share, such as the main actor, one call waits for the other; but the actor's other tests have
/// the virtual time meanwhile, too.
///
/// - Parameters:
///   - seed: As in the variant for synchronous tests.
///   - body: The test.
/// - Precondition: Not called inside `withVirtualTime`, nor in a task that was made inside. The task is on the same thread at
///   the end.
nonisolated(nonsending) public func withVirtualTime<Result>(
    seed: UInt64? = nil, _ body: nonisolated(nonsending) (VirtualTime) async throws -> Result
) async rethrows -> Result {
    let domain = await TimeDomain.enterFromTask("withVirtualTime", seed: seed)
    defer { domain.leave() }
    return try await TimeDomain.$ofTask.withValue(domain) { try await body(VirtualTime(domain)) }
}
