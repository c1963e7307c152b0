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
        /// How many threads wait without their loops: the clock runs.
        var blockedCount = 0
        /// Whether the test is over: threads that it has started, and that still run, wait in the kernel's time.
        var hasEnded = false
        /// Whether something else works, such as a child process.
        var isWorking: [@Sendable () -> Bool] = []
        var clockTimers = ClockTimers()
        /// Descriptors that only code of the same threads makes ready, and at once, with their files: a number may be
        /// another file's by now.
        var ownDescriptors: [CInt: UInt64] = [:]
        /// Decides on the order of what is ready at once; nil for the order of the kernel.
        var seed: UInt64?
        /// For each loop, so that the order does not depend on which thread comes first.
        var generators: [ObjectIdentifier: SeededGenerator] = [:]
        /// How many nested calls wait until nothing is scheduled, and whether that has come.
        var idleWaitCount = 0
        var isIdle = false

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
    private static let quietPeriod = 20
    /// The same if the concurrency pool is so busy that tasks come to nothing in that time.
    private static let longestQuietPeriod = 500

    // MARK: The threads

    /// The task that has entered; nil for none.
    private let task = currentTask

    static func refuseNesting() -> Never {
        fatalError(
            "withVirtualTime: this thread has virtual time already, by a call around this one or another test's."
        )
    }

    /// The domain of the calling thread, if another task has entered it: on the main actor tests take turns.
    static var ofAnotherTask: TimeDomain? {
        guard let domain = currentTimeSource as? TimeDomain, domain.task != currentTask else { return nil }
        return domain
    }

    /// Waits until this has ended.
    func untilEnd() async { await end.wait() }

    /// Replaces the calling thread's time.
    ///
    /// - Parameter seed: Decides on the order of what is ready at once; nil for the kernel's order.
    static func enter(seed: UInt64?) -> TimeDomain {
        guard currentTimeSource == nil else { refuseNesting() }
        let domain = TimeDomain()
        domain.state.withLock { $0.seed = seed }
        domain.note([(try? mainQueueHandle()) ?? -1], areOwn: true)
        domain.enterThread()
        domain.loopBegan(domain.loop)
        return domain
    }

    /// Gives the calling thread the kernel's time again, and ends the library's threads with this time.
    func leave() {
        guard currentTimeSource === self else {
            fatalError(
                "withVirtualTime must end on the thread it began on: add .runLoop, or isolate the test to a loop's actor."
            )
        }
        let threads = threads.withLock { threads in
            defer { threads = [:] }
            return Array(threads.values)
        }
        for thread in threads { (thread as? RunLoopThread)?.stop() }
        state.withLock { state in
            state.hasEnded = true
            clocks.run()
            state.clockTimers.armInKernel(clocks)
        }
        loopEnded(loop)
        leaveThread()
        end.set(())
    }

    func enterThread() { clocks.enter(for: self) }

    func leaveThread() { clocks.leave() }

    func loopBegan(_ loop: AnyObject) {
        clocks.enter(loop)
        let key = ObjectIdentifier(loop)
        state.withLock { _ = $0.busyLoops.insert(key) }
    }

    func loopEnded(_ loop: AnyObject) {
        clocks.leave(loop)
        let key = ObjectIdentifier(loop)
        state.withLock { state in
            state.busyLoops.remove(key)
            state.loops[key] = nil
            state.generators[key] = nil
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
        let loop = RunLoop.current
        let hasEnded = state.withLock { state in
            guard !state.hasEnded else { return true }
            stopClock(state)
            state.busyLoops.remove(ObjectIdentifier(loop))
            state.loops[ObjectIdentifier(loop)] = WaitingLoop(
                loop: loop, wait: wait, date: date, passCount: loop.passCount)
            return false
        }
        if hasEnded { return date == .max ? .max : Deadline(uptimeNanoseconds: date).kernelNanoseconds }
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
        let isAwaited = state.withLock { state in
            state.isIdle = state.idleWaitCount > 0
            return state.isIdle
        }
        guard isAwaited else { return .max }
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
            let now = clocks.now
            let loopDate = state.loops.values.reduce(.max) { min($0, $1.date) }
            if state.blockedCount > 0 { return .run(loopDate) }
            guard state.isWaiting(besides: current) else { return .none }
            let date = min(loopDate, state.clockTimers.nextDate(clocks))
            state.isWorking.removeAll { !$0() }
            if !state.isWorking.isEmpty {
                // No loop may be watching for the end of the work.
                return .run(min(date, now + Int64(Self.quietPeriod) * 1_000_000))
            }
            if state.workCount > 0 { return .run(date) }
            return date == .max ? .idle : .jump(max(date, now))
        }
    }

    /// Whether nothing is ready, and nothing becomes ready while peers and tasks have time for it.
    private func isQuiet() -> Bool {
        let loops = state.withLock { Array($0.loops.values) }
        let period = loops.contains(where: hasPeers) ? Self.quietPeriod : 0
        let pool = loops.contains { $0.loop.hasExecutors } ? PoolProbe() : nil
        var milliseconds = 0
        while true {
            if loops.contains(where: { $0.wait.isReady }) { return false }
            let isOver = milliseconds >= period && pool?.hasPassed ?? true
            if isOver || milliseconds >= Self.longestQuietPeriod { return true }
            _ = poll(nil, 0, 1)
            milliseconds += 1
        }
    }

    /// Whether a loop waits for something that other code may make ready: a descriptor, or a task, which may be in the
    /// concurrency pool for a moment.
    private func hasPeers(_ loop: WaitingLoop) -> Bool {
        if loop.loop.hasExecutors { return true }
        return state.withLock { state in
            loop.wait.descriptors.contains {
                !state.clockTimers.contains($0)
                    && (state.ownDescriptors[$0] == nil || state.ownDescriptors[$0] != fileNumber(of: $0))
            }
        }
    }

    private func jump(to date: Int64) {
        let current = RunLoop.current
        state.withLock { state in
            clocks.stop(at: date)
            for (key, loop) in state.loops where loop.date <= date && loop.loop !== current {
                state.busyLoops.insert(key)
                loop.wait.end()
            }
            state.clockTimers.fire(clocks)
        }
    }

    /// Moves the clock without running the calling thread's loop.
    func pass(_ duration: Duration) {
        jump(to: (Deadline(uptimeNanoseconds: clocks.now) + duration).uptimeNanoseconds)
    }

    /// Stops the loop when nothing is scheduled, until ``endStoppingWhenIdle()``.
    func beginStoppingWhenIdle() {
        state.withLock { state in
            state.idleWaitCount += 1
            state.isIdle = false
        }
    }

    func endStoppingWhenIdle() { state.withLock { $0.idleWaitCount -= 1 } }

    var hasBecomeIdle: Bool { state.withLock { $0.isIdle } }

    /// The seed of `withVirtualTime`.
    var seed: UInt64? { state.withLock { $0.seed } }

    /// Notes descriptors that only code of the same threads makes ready, and at once; with false that they are closed.
    func note(_ descriptors: [CInt], areOwn: Bool) {
        state.withLock { state in
            for descriptor in descriptors {
                state.ownDescriptors[descriptor] = areOwn ? fileNumber(of: descriptor) : nil
            }
        }
    }

    // MARK: The order of what is ready

    func order(of count: Int) -> [Int] {
        let key = ObjectIdentifier(RunLoop.current)
        return state.withLock { state in
            guard let seed = state.seed else { return Array(0..<count) }
            let first = SeededGenerator(seed: seed &+ UInt64(state.generators.count))
            return (0..<count).shuffled(using: &state.generators[key, default: first])
        }
    }

    // MARK: Work elsewhere

    func beginBlocking() {
        state.withLock { state in
            state.blockedCount += 1
            clocks.run()
        }
        // They wait in real time meanwhile.
        wakeLoops()
    }

    func endBlocking() {
        state.withLock { state in
            state.blockedCount -= 1
            stopClock(state)
        }
        wakeLoops()
    }

    func didWait() { state.withLock { stopClock($0) } }

    /// While code runs the clock stands still, unless a thread is blocked.
    private func stopClock(_ state: borrowing State) {
        if state.blockedCount == 0, !state.hasEnded { clocks.stop(at: clocks.now) }
    }

    func beginWork() { state.withLock { $0.workCount += 1 } }

    func endWork() {
        state.withLock { state in
            state.workCount -= 1
            if state.workCount == 0 { stopClock(state) }
        }
        wakeLoops()
    }

    func noteWork(while isRunning: @escaping @Sendable () -> Bool) {
        state.withLock { $0.isWorking.append(isRunning) }
    }

    // MARK: The wall clock and the time since boot

    func arm(_ descriptor: CInt, on clock: CInt, at date: Int64, every interval: Int64) {
        state.withLock { $0.clockTimers.arm(descriptor, on: clock, at: date, every: interval, clocks) }
    }

    func disarm(_ descriptor: CInt) { state.withLock { $0.clockTimers.disarm(descriptor) } }

    func takeFirings(of descriptor: CInt) throws(Errno) -> UInt64? {
        try state.withLock { (state) throws(Errno) in try state.clockTimers.takeFirings(of: descriptor) }
    }

    func setWallClock(to date: Duration) {
        clocks.setLead(of: CLOCK_REALTIME, to: date.wholeNanoseconds - clocks.now)
        state.withLock { $0.clockTimers.noteClockSet(clocks) }
    }

    func suspend(for duration: Duration) {
        for clock in [CLOCK_REALTIME, CLOCK_BOOTTIME] {
            clocks.setLead(of: clock, to: clocks.lead(of: clock) + duration.wholeNanoseconds)
        }
        // The kernel says so after a suspension, too.
        state.withLock { $0.clockTimers.noteClockSet(clocks) }
    }
}

/// What tells a descriptor's file from another one that gets its number; 0 once it is closed.
private func fileNumber(of descriptor: CInt) -> UInt64 {
    var status = stat()
    return unsafe fstat(descriptor, &status) == 0 ? UInt64(status.st_ino) : 0
}

/// Identifies the current task; nil outside of one.
private var currentTask: Int? { unsafe withUnsafeCurrentTask { unsafe $0?.hashValue } }
