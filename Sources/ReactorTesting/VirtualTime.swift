import Glibc
public import Reactor

/// The time of a test's thread, which passes only when the test says so or when its loop would wait.
///
/// The clock stands still while code runs. When a loop has nothing to serve and would wait for a timer, the clock jumps
/// to the timer's date. So nothing takes longer than its own work, and nothing depends on how busy the machine is.
///
/// ```swift
/// @Test func `a client retries with a growing delay`() throws {
///     try withVirtualTime { time in
///         let client = Client(to: unreachableAddress)
///         time.advance(by: .seconds(95))
///         #expect(client.attemptCount == 6)
///     }
/// }
/// ```
///
/// It applies to everything of the library that waits for time, on the thread that calls `withVirtualTime` and on threads that
/// it starts inside (`RunLoopThread`): timers, `ClockTimer`, `Deadline.now`, sleeps on a
/// loop's clock, and the timeouts of connections, listeners and HTTP transfers. A dispatch queue's thread has it while it
/// delivers a stream's events or processes a hand-off that these threads have begun. Other threads, and other clocks, such as
/// `ContinuousClock` and `Date`, keep real time.
///
/// ## What is real
///
/// Descriptors are real. The clock does not jump while one is ready, while another thread works for the loop (a hand-off, a
/// file, a name to be resolved), or while a child process runs that the test has started: then it runs as
/// the real one does. Before a jump, a loop that waits for sockets or pipes, or that runs tasks, gives the others 20 ms of real
/// time. A test whose other threads need longer holds the clock: ``hold()``.
///
/// A blocking call, such as `OutputStream.flush(timeout:)`, lets the clock run until it returns.
public final class VirtualTime: Sendable {
    let domain: TimeDomain

    init(_ domain: TimeDomain) { self.domain = domain }

    /// A descriptor that is never read is always ready.
    private static let mostPasses = 100

    /// The loop of the test's thread, for asynchronous tests.
    public var loop: RunLoop { domain.loop }

    /// The present moment: what `Deadline.now` is on the test's thread.
    public var now: Deadline { Deadline(uptimeNanoseconds: domain.clocks.now) }

    /// Moves the clock by `duration`, and meanwhile runs the loop: timers fire at their dates, in order, and descriptors
    /// are served in between.
    ///
    /// - Parameters:
    ///   - duration: How far; zero serves what is due or ready now.
    ///   - mode: The mode to run the loop in.
    /// - Precondition: Called on the thread of `withVirtualTime`.
    @available(*, noasync, message: "await advance(by:)")
    public func advance(by duration: Duration, inMode mode: RunLoop.Mode = .default) {
        let end = now + duration
        domain.loop.run(in: mode, until: end)
        // The mode may have become empty before.
        if now < end { domain.clocks.stop(at: end.uptimeNanoseconds) }
        var passCount = 0
        while passCount < Self.mostPasses {
            let othersWait = domain.othersWait
            let result = domain.loop.run(in: mode, until: end, returnAfterSourceHandled: true)
            if result == .handledSource {
                passCount += 1
            } else if othersWait {
                break
            } else {
                // Other threads do what is due for them.
                _ = poll(nil, 0, 1)
            }
        }
    }

    /// Moves the clock by `duration`, as the method for synchronous tests does, while the task is suspended.
    nonisolated(nonsending) public func advance(by duration: Duration) async throws {
        try await domain.loop.clock().sleep(for: duration)
    }

    /// Runs the loop until nothing is ready, and nothing is scheduled. The clock moves to the last timer's date.
    ///
    /// Does not return while there is a repeating timer.
    ///
    /// - Parameter mode: The mode to run the loop in.
    /// - Precondition: Called on the thread of `withVirtualTime`.
    @available(*, noasync, message: "await the work itself")
    public func runUntilIdle(inMode mode: RunLoop.Mode = .default) {
        domain.stopWhenIdle(true)
        domain.loop.run(in: mode)
        domain.stopWhenIdle(false)
    }

    /// Keeps the clock from jumping until the result is released or its ``Hold/end()`` is called: meanwhile it runs as the real
    /// one does when a loop waits.
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

    /// The wall clock, since 1970-01-01 00:00 UTC. Setting it moves no timer on the monotonic clock, and tells
    /// each `ClockTimer` on the wall clock that it was set.
    public var wallClock: Duration {
        get { .nanoseconds(domain.clocks.now + domain.clocks.lead(of: CLOCK_REALTIME)) }
        set { domain.setWallClock(to: newValue) }
    }

    /// Lets the machine sleep for `duration`: the wall clock and the time since boot move, the monotonic clock does not.
    public func suspendMachine(for duration: Duration) { domain.suspend(for: duration) }
}

/// Calls `body` with the time of the calling thread in the test's hands; see ``VirtualTime``.
///
/// Afterwards the thread has the kernel's time again. Timers that are left on its loop fire as much later as the clock has moved.
///
/// - Parameters:
///   - seed: Decides on the order in which descriptors and streams are served that are ready at the same time; see ``seeds(_:)``.
///     With nil it is the kernel's order.
///   - body: The test.
/// - Precondition: The thread's time is not virtual yet.
@available(
    *, noasync, message: "await withVirtualTime, in a suite with the trait runLoop or on an actor of a loop"
)
public func withVirtualTime<Result>(
    seed: UInt64? = nil, _ body: (VirtualTime) throws -> Result
) rethrows -> Result {
    let domain = TimeDomain.enter(seed: seed)
    defer { domain.leave() }
    return try body(VirtualTime(domain))
}

/// Calls `body` with the time of the calling thread in the test's hands; see ``VirtualTime``.
///
/// The task has to stay on one thread whose loop runs while the task is suspended: that of a test in a suite with the trait
/// `runLoop`, the main actor, or an actor whose executor is a loop's.
///
/// On an actor that several tests share, such as the main actor, one call waits for the other; but the actor's other tests have the
/// virtual time meanwhile, too.
///
/// - Parameters:
///   - seed: As in the variant for synchronous tests.
///   - body: The test.
/// - Precondition: Not called inside `withVirtualTime`. The task is on the same thread at the end.
nonisolated(nonsending) public func withVirtualTime<Result>(
    seed: UInt64? = nil, _ body: nonisolated(nonsending) (VirtualTime) async throws -> Result
) async rethrows -> Result {
    if TimeDomain.isInside { TimeDomain.refuseNesting() }
    while let other = TimeDomain.current { await other.untilEnd() }
    let domain = TimeDomain.enter(seed: seed)
    defer { domain.leave() }
    return try await TimeDomain.$isInside.withValue(true) { try await body(VirtualTime(domain)) }
}
