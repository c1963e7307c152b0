import CReactorLinux
import Glibc
import Reactor
import SystemPackage

/// The threads that share one virtual time, and the rule by which it moves: when all their loops wait, nothing is ready and
/// nothing works for them elsewhere, the clock jumps to the earliest date that one of them waits for.
final class TimeDomain: TimeSource {
    let clocks = ReplacedClocks()
    /// The loop of the thread that began.
    let loop = RunLoop.current
    private let state = Mutex(State())
    private let end = AsyncPromise<Void>()
    /// The library's own threads with this time, by name.
    private let threads = Mutex<[String: any AnyObject & Sendable]>([:])

    private struct State {
        var loops: [ObjectIdentifier: WaitingLoop] = [:]
        /// The loops that have not waited yet, or not since the clock has jumped to a date of theirs.
        var busyLoops: Set<ObjectIdentifier> = []
        /// How much works elsewhere for the loops, such as a hand-off.
        var workCount = 0
        /// Whether something else works, such as a child process.
        var isWorking: [@Sendable () -> Bool] = []
        var clockTimers: [CInt: KernelTimer] = [:]
        /// Descriptors that only code of the same threads makes ready, and at once.
        var ownDescriptors: Set<CInt> = [reactor_main_queue_handle()]
        /// Permutes what is ready at once; nil for the order of the kernel.
        var order: SeededGenerator?
        /// Whether to stop the loop when nothing is scheduled.
        var stopsWhenIdle = false

        /// Whether all loops but `current`, the calling thread's, wait.
        func isWaiting(besides current: RunLoop) -> Bool {
            busyLoops.subtracting([ObjectIdentifier(current)]).isEmpty
                && loops.values.allSatisfy { $0.loop === current || $0.isWaiting }
        }
    }

    /// Whether all loops but that of the calling thread wait.
    var othersWait: Bool { state.withLock { $0.isWaiting(besides: loop) } }

    /// A loop, as it was when it last began to wait.
    private struct WaitingLoop: Sendable {
        let loop: RunLoop
        let wait: LoopWait
        let date: Int64
        let passCount: Int

        /// Whether it still waits.
        var isWaiting: Bool { loop.isAsleep && loop.passCount == passCount }
    }

    /// How long peers and tasks have, in milliseconds of real time, to make the loop busy before the clock jumps.
    private static let patience = 20

    // MARK: The threads

    /// Whether the current task is inside `withVirtualTime`.
    @TaskLocal static var isInside = false

    static func refuseNesting() -> Never { fatalError("withVirtualTime was called inside withVirtualTime.") }

    /// The domain of the calling thread.
    static var current: TimeDomain? { currentTimeSource as? TimeDomain }

    /// Waits until this has ended.
    func untilEnd() async { await end.wait() }

    /// Replaces the calling thread's time.
    ///
    /// - Parameter seed: Decides on the order of what is ready at once; nil for the kernel's order.
    static func enter(seed: UInt64?) -> TimeDomain {
        guard currentTimeSource == nil else { refuseNesting() }
        let domain = TimeDomain()
        domain.state.withLock { $0.order = seed.map { SeededGenerator(seed: $0) } }
        domain.enterThread()
        domain.loopBegan(domain.loop)
        return domain
    }

    /// Gives the calling thread the kernel's time again, and ends the library's threads with this time.
    func leave() {
        guard currentTimeSource === self else {
            fatalError("withVirtualTime ended on another thread than it began on.")
        }
        let threads = threads.withLock { threads in
            defer { threads = [:] }
            return Array(threads.values)
        }
        for thread in threads { (thread as? RunLoopThread)?.stop() }
        // Threads that the test has started may outlive this.
        clocks.run()
        loopEnded(loop)
        leaveThread()
        end.set(())
    }

    func enterThread() { clocks.enter(for: self) }

    func leaveThread() { clocks.leave() }

    func loopBegan(_ loop: AnyObject) {
        let key = ObjectIdentifier(loop)
        state.withLock { _ = $0.busyLoops.insert(key) }
    }

    func loopEnded(_ loop: AnyObject) {
        let key = ObjectIdentifier(loop)
        state.withLock { state in
            state.busyLoops.remove(key)
            state.loops[key] = nil
        }
        wakeLoops()
    }

    /// Lets the loops decide again how to wait.
    private func wakeLoops() {
        for loop in state.withLock({ $0.loops.values.map(\.loop) }) { loop.wakeUp() }
    }

    func thread<Thread: AnyObject & Sendable>(
        named name: String, make: () throws(Errno) -> Thread
    ) throws(Errno) -> Thread {
        try threads.withLock { threads throws(Errno) in
            if let thread = threads[name] as? Thread { return thread }
            let thread = try make()
            threads[name] = thread
            return thread
        }
    }

    // MARK: Waiting

    func willWait(until date: Int64, _ wait: LoopWait) -> Int64 {
        clocks.stop(at: clocks.now)
        let loop = RunLoop.current
        state.withLock { state in
            state.busyLoops.remove(ObjectIdentifier(loop))
            state.loops[ObjectIdentifier(loop)] = WaitingLoop(
                loop: loop, wait: wait, date: date, passCount: loop.passCount)
        }
        let step = nextStep(after: loop)
        switch step {
        case .none: return .max
        case .run(let end):
            clocks.run()
            return Deadline(uptimeNanoseconds: end).kernelNanoseconds
        case .jump, .idle:
            guard isQuiet(), nextStep(after: loop) == step else { return .max }
        }
        if case .jump(let end) = step {
            jump(to: end)
            return date <= end ? .min : .max
        }
        guard state.withLock({ $0.stopsWhenIdle }) else { return .max }
        self.loop.stop()
        return loop === self.loop ? .min : .max
    }

    /// What happens to the clock.
    private enum Step: Equatable {
        /// Nothing: another loop is busy, and will decide when it waits.
        case none
        /// It jumps.
        case jump(Int64)
        /// Nothing, as nothing is scheduled.
        case idle
        /// It runs as the kernel's does, until this time at most, because something works elsewhere.
        case run(Int64)
    }

    private func nextStep(after current: RunLoop) -> Step {
        state.withLock { state in
            guard state.isWaiting(besides: current) else { return .none }
            let now = clocks.now
            let loopDate = state.loops.values.reduce(.max) { min($0, $1.date) }
            let date = state.clockTimers.values.reduce(loopDate) { min($0, $1.date(on: clocks)) }
            state.isWorking.removeAll { !$0() }
            if !state.isWorking.isEmpty {
                // No loop may be watching for the end of the work.
                return .run(min(date, now + Int64(Self.patience) * 1_000_000))
            }
            if state.workCount > 0 { return .run(date) }
            return date == .max ? .idle : .jump(max(date, now))
        }
    }

    /// Whether nothing is ready, and nothing becomes ready while peers have time for it.
    private func isQuiet() -> Bool {
        let loops = state.withLock { Array($0.loops.values) }
        let patience = loops.contains(where: hasPeers) ? Self.patience : 0
        for millisecond in 0...patience {
            if loops.contains(where: { $0.wait.isReady }) { return false }
            if millisecond < patience { _ = poll(nil, 0, 1) }
        }
        return true
    }

    /// Whether a loop waits for something that other code may make ready: a descriptor, or a task, which may be in the concurrency
    /// pool for a moment.
    private func hasPeers(_ loop: WaitingLoop) -> Bool {
        if loop.loop.hasExecutors { return true }
        return state.withLock { state in
            loop.wait.descriptors.contains {
                state.clockTimers[$0] == nil && !state.ownDescriptors.contains($0)
            }
        }
    }

    private func jump(to date: Int64) {
        clocks.stop(at: date)
        state.withLock { state in
            for (key, loop) in state.loops where loop.date <= date && loop.loop !== RunLoop.current {
                state.busyLoops.insert(key)
                loop.wait.end()
            }
            fireClockTimers(&state)
        }
    }

    /// Whether to stop the loop when nothing is scheduled.
    func stopWhenIdle(_ stops: Bool) { state.withLock { $0.stopsWhenIdle = stops } }

    /// Notes descriptors that only code of the same threads makes ready, and at once; with false that they are closed.
    func note(_ descriptors: [CInt], areOwn: Bool) {
        state.withLock { state in
            if areOwn {
                state.ownDescriptors.formUnion(descriptors)
            } else {
                state.ownDescriptors.subtract(descriptors)
            }
        }
    }

    // MARK: The order of what is ready

    func order(of count: Int) -> [Int] {
        state.withLock { state in
            guard var generator = state.order else { return Array(0..<count) }
            defer { state.order = generator }
            return (0..<count).shuffled(using: &generator)
        }
    }

    // MARK: Work elsewhere

    func beginBlocking() { clocks.run() }

    func endBlocking() { clocks.stop(at: clocks.now) }

    func beginWork() { state.withLock { $0.workCount += 1 } }

    func endWork() {
        state.withLock { $0.workCount -= 1 }
        wakeLoops()
    }

    func noteWork(while isRunning: @escaping @Sendable () -> Bool) {
        state.withLock { $0.isWorking.append(isRunning) }
    }

    // MARK: The wall clock and the time since boot

    /// A timer of the kernel, which the domain fires.
    private struct KernelTimer {
        let clock: CInt
        /// When it fires next, on its clock; `.max` for never.
        var next: Int64
        let interval: Int64
        var firingCount: UInt64 = 0
        var clockWasSet = false

        /// When it fires next, on the monotonic clock.
        func date(on clocks: ReplacedClocks) -> Int64 {
            next == .max ? .max : next - clocks.lead(of: clock)
        }
    }

    func arm(_ descriptor: CInt, on clock: CInt, at date: Int64, every interval: Int64) {
        _ = reactor_timerfd_set(descriptor, 0, 0, false)
        state.withLock { state in
            state.clockTimers[descriptor] = KernelTimer(
                clock: clock, next: date == 0 ? .max : date, interval: interval)
            fireClockTimers(&state)
        }
    }

    func disarm(_ descriptor: CInt) { state.withLock { $0.clockTimers[descriptor] = nil } }

    func takeFirings(of descriptor: CInt) throws(Errno) -> UInt64 {
        _ = reactor_timerfd_set(descriptor, 0, 0, false)
        return try state.withLock { state throws(Errno) in
            guard var timer = state.clockTimers[descriptor] else { throw .resourceTemporarilyUnavailable }
            defer { state.clockTimers[descriptor] = timer }
            (timer.firingCount, timer.clockWasSet) = (0, false)
            let former = state.clockTimers[descriptor]!
            if former.clockWasSet { throw .canceled }
            return former.firingCount
        }
    }

    /// Makes the descriptors of the timers readable whose dates have come.
    private func fireClockTimers(_ state: inout sending State) {
        let now = clocks.now
        for (descriptor, var timer) in state.clockTimers where timer.date(on: clocks) <= now {
            let late = now - timer.date(on: clocks)
            let count = timer.interval > 0 ? late / timer.interval + 1 : 1
            timer.firingCount += UInt64(count)
            timer.next = timer.interval > 0 ? timer.next + count * timer.interval : .max
            state.clockTimers[descriptor] = timer
            _ = reactor_timerfd_set(descriptor, 1, 0, false)
        }
    }

    func setWallClock(to date: Duration) {
        clocks.setLead(of: CLOCK_REALTIME, to: date.wholeNanoseconds - clocks.now)
        noteClockSet()
    }

    func suspend(for duration: Duration) {
        for clock in [CLOCK_REALTIME, CLOCK_BOOTTIME] {
            clocks.setLead(of: clock, to: clocks.lead(of: clock) + duration.wholeNanoseconds)
        }
        // The kernel says so after a suspension, too.
        noteClockSet()
    }

    private func noteClockSet() {
        state.withLock { state in
            fireClockTimers(&state)
            for (descriptor, timer) in state.clockTimers where timer.clock == CLOCK_REALTIME {
                state.clockTimers[descriptor]?.clockWasSet = true
                _ = reactor_timerfd_set(descriptor, 1, 0, false)
            }
        }
    }
}
