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
        var loops = DomainLoops()
        /// How much works elsewhere for the loops, such as a hand-off.
        var workCount = 0
        /// How many threads wait without their loops: the clock runs.
        var blockedCount = 0
        /// Whether the test is over: threads that it has started, and that still run, wait in the kernel's time.
        var hasEnded = false
        /// Checks of work that has no end call, such as a child process.
        var workChecks: [@Sendable () -> Bool] = []
        var clockTimers = ClockTimers()
        /// Descriptors that only code of the same threads makes ready, and at once, with their files: a number may be
        /// another file's by now.
        var ownDescriptors: [CInt: UInt64] = [:]
        /// One for each loop, so that the order does not depend on which thread comes first.
        var generators: [ObjectIdentifier: SeededGenerator] = [:]
        /// How many loops have begun.
        var loopCount: UInt64 = 0
        /// How many nested calls wait until nothing is scheduled, and whether that has come.
        var idleWaitCount = 0
        var isIdle = false
    }

    /// Whether all loops but that of the calling thread wait.
    var othersWait: Bool { state.withLock { $0.loops.isWaiting(besides: loop) } }

    /// How long peers have, in microseconds of real time, to make the loop busy before the clock jumps.
    static let quietPeriod = 20_000
    /// The limit while the concurrency pool is so busy that tasks make no progress.
    private static let longestQuietPeriod = 500_000
    /// How far looks are apart: less than a step of a task takes at first, and rarely enough later.
    private static let (shortestPause, longestPause) = (25, 1000)

    // MARK: The threads

    /// The domain of the call that the current task is in, or was made in; nil for none.
    @TaskLocal static var ofTask: TimeDomain?
    private let taskThreads = TaskThreads(ofTestOn: TestScope.currentThread)
    /// Whether the test is a task that the loop serves.
    private let servesTask: Bool
    /// Determines the order of what is ready at once; nil for the order of the kernel.
    let seed: UInt64?

    /// The network of a simulation, whose library loop stands for the library's own threads.
    let simulation: SimulatedNetwork?
    var libraryLoop: AnyObject? { simulation?.libraryLoop.runLoop }
    var network: (any Network)? { simulation.flatMap { $0.libraryLoop.isOnThread ? $0 : nil } }

    private init(seed: UInt64?, servesTask: Bool, _ simulation: SimulationRun?) {
        (self.seed, self.servesTask) = (seed, servesTask)
        self.simulation = simulation.map { [clocks] in SimulatedNetwork(clocks, seed: $0.seed, kept: $0.kept)
        }
    }

    static func refuseNesting() -> Never {
        fatalError(
            "withVirtualTime and withSimulation: this thread has virtual time already, by a call around this one or its task, or by another test's."
        )
    }

    /// The domain of the calling thread, if another task has entered it: on the main actor tests take turns.
    static var ofAnotherTask: TimeDomain? {
        guard let domain = currentTimeSource as? TimeDomain, domain !== ofTask else { return nil }
        return domain
    }

    /// Replaces the time of the thread that a task stays on, when another task that has done so has ended.
    ///
    /// - Parameter function: The name of the public function, for the message.
    nonisolated(nonsending) static func enterFromTask(
        _ function: String, seed: UInt64?, simulation: SimulationRun? = nil
    ) async -> TimeDomain {
        precondition(
            !reactor_is_on_pool_thread(),
            "\(function) needs a task that stays on a loop's thread: add the trait .runLoop, or isolate the test to a loop's actor."
        )
        while let other = ofAnotherTask { await other.end.wait() }
        return enter(seed: seed, servesTask: true, simulation: simulation)
    }

    /// Replaces the calling thread's time.
    ///
    /// - Parameters:
    ///   - seed: Determines the order of what is ready at once; nil for the kernel's order.
    ///   - servesTask: Whether the test awaits while the loop runs.
    ///   - simulation: What has a network of its own; nil for the kernel's.
    static func enter(seed: UInt64?, servesTask: Bool, simulation: SimulationRun? = nil) -> TimeDomain {
        guard currentTimeSource == nil else { refuseNesting() }
        let domain = TimeDomain(seed: seed, servesTask: servesTask, simulation)
        domain.addOwn([(try? mainQueueHandle()) ?? -1])
        domain.enterThread()
        domain.loop.timeWasReplaced()
        domain.loopBegan(domain.loop)
        domain.beginSimulation()
        return domain
    }

    /// 1 January 2026.
    private static let firstDate = Duration.seconds(1_767_225_600)

    /// Swift's concurrency pool would run tasks in another order each time. Their jobs run on the simulation's loop instead.
    private static let redirectJobs: Void = unsafe reactor_redirect_jobs { job in
        guard let job = unsafe job, let domain = currentTimeSource as? TimeDomain, domain.simulation != nil
        else {
            return false
        }
        let executor: any TaskExecutor = domain.loop.executor()
        unsafe executor.enqueue(ExecutorJob(unsafeBitCast(job, to: UnownedJob.self)))
        return true
    }

    private func beginSimulation() {
        guard let simulation else { return }
        Self.redirectJobs
        setWallClock(to: Self.firstDate)
        state.withLock { state in
            state.generators[ObjectIdentifier(simulation.libraryLoop.runLoop)] = SeededGenerator(
                seed: simulation.plan.seed &- 1)
        }
    }

    /// Gives the calling thread the kernel's time again, and ends the library's threads with this time when they have nothing
    /// left to do, such as bytes to send.
    func leave() {
        requireOnThread()
        simulation?.end()
        let threads = threads.withLock { threads in
            defer { threads = [:] }
            return Array(threads.values)
        }
        for thread in threads { (thread as? RunLoopThread)?.endWhenIdle() }
        state.withLock { state in
            state.hasEnded = true
            clocks.run()
            state.clockTimers.armInKernel(clocks)
        }
        loopEnded(loop)
        leaveThread()
        end.set(())
    }

    /// Requires that the calling thread is the one that has entered.
    func requireOnThread() {
        guard currentTimeSource === self else {
            fatalError(
                "withVirtualTime must end on the thread it began on: add .runLoop, or isolate the test to a loop's actor."
            )
        }
    }

    func requireNotEnded() {
        precondition(
            !state.withLock { $0.hasEnded },
            "A VirtualTime is used after its withVirtualTime or withSimulation has returned.")
    }

    func enterThread() { clocks.enter(for: self) }

    func leaveThread() { clocks.leave() }

    func loopBegan(_ loop: AnyObject) {
        clocks.enter(loop)
        let key = ObjectIdentifier(loop)
        state.withLock { state in
            state.loops.setBusy(key)
            if let seed {
                state.generators[key] = SeededGenerator(seed: seed &+ state.loopCount)
            }
            state.loopCount += 1
        }
    }

    func loopEnded(_ loop: AnyObject) {
        clocks.leave(loop)
        let key = ObjectIdentifier(loop)
        wakeLoops { state in
            state.loops.remove(key)
            state.generators[key] = nil
        }
    }

    /// Changes the state, and lets the loops that wait decide again how to.
    private func wakeLoops(after change: (inout State) -> Void) {
        let loops = state.withLock { state in
            // Before, because a wait that the change ends may not have set its timer yet, and would set it after that.
            let loops = state.loops.waiting.values.map(\.loop)
            change(&state)
            return loops
        }
        for loop in loops { loop.wakeUp() }
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
        guard let libraryLoop = simulation?.libraryLoop, libraryLoop.isOnThread else {
            return awaitTurn(until: date, wait)
        }
        while true {
            while libraryLoop.serve() {
                // What the library has done may be for this loop.
                if !loop.isAsleep || wait.isReady { return .min }
            }
            let libraryDate = libraryLoop.nextDate.uptimeNanoseconds
            let end = awaitTurn(until: min(date, libraryDate), wait)
            guard end == .min, libraryDate <= clocks.now, date > clocks.now, loop.isAsleep else { return end }
        }
    }

    /// Serves the library loop of a simulation. Returns whether there was anything to do.
    func serveLibraryLoop() -> Bool { simulation?.libraryLoop.serve() ?? false }

    /// Waits until the clock has been moved to `date`, or something is ready; as ``willWait(until:_:)``.
    private func awaitTurn(until date: Int64, _ wait: LoopWait) -> Int64 {
        let current = DomainLoops.Waiting(loop: .current, wait: wait, date: date)
        let number = state.withLock { state in
            stopClock(state)
            return state.loops.begin(current)
        }
        var hasBeenQuiet = false
        while true {
            switch state.withLock({ takeStep(&$0, current, number, hasBeenQuiet) }) {
            case .wait(let end): return end
            case .becomeQuiet:
                // The loop that has something ready decides when it waits again.
                guard isQuiet() else { return .max }
                hasBeenQuiet = true
            case .stop:
                loop.stop()
                return loop === current.loop ? .min : .max
            }
        }
    }

    /// What a loop does that is about to wait.
    private enum Step {
        /// It waits until this time of the kernel: `.min` for not at all, `.max` for until something wakes it.
        case wait(until: Int64)
        /// It looks whether anything becomes ready, and decides again.
        case becomeQuiet
        /// It ends ``VirtualTime/runUntilIdle(inMode:)``.
        case stop
    }

    /// Decides what happens to the clock, and does it before the lock is released: after that other threads may move the
    /// clock, begin work or end the test.
    private func takeStep(
        _ state: inout State, _ current: DomainLoops.Waiting, _ number: Int, _ hasBeenQuiet: Bool
    ) -> Step {
        guard !state.hasEnded else { return run(until: current.date) }
        serveDates(&state, current.loop)
        if state.loops.isBusy(current.loop) { return .wait(until: .min) }
        let date = min(state.loops.nextDate, state.clockTimers.nextDate(clocks))
        if state.blockedCount > 0 { return run(until: date) }
        guard number == state.loops.waitCount, state.loops.isWaiting() else { return .wait(until: .max) }
        state.workChecks.removeAll { !$0() }
        if !state.workChecks.isEmpty {
            // No loop may be watching for the end of the work.
            return run(until: min(date, clocks.now + Int64(Self.quietPeriod) * 1000))
        }
        if state.workCount > 0 { return run(until: date) }
        guard hasBeenQuiet else { return .becomeQuiet }
        if date != .max { return jump(to: date, &state, current.loop) }
        state.isIdle = state.idleWaitCount > 0
        return state.isIdle ? .stop : .wait(until: .max)
    }

    /// Runs the clock as the kernel's.
    private func run(until date: Int64) -> Step {
        clocks.run()
        return .wait(until: Deadline(uptimeNanoseconds: date).kernelNanoseconds)
    }

    private func jump(to date: Int64, _ state: inout State, _ current: RunLoop) -> Step {
        clocks.stop(at: date)
        serveDates(&state, current)
        if state.loops.isBusy(current) { return .wait(until: .min) }
        // If all loops wait still, it was the date of a clock timer, which may be in no loop.
        return state.loops.isWaiting() ? .becomeQuiet : .wait(until: .max)
    }

    /// Ends the waits whose dates have come, and fires the clock timers.
    private func serveDates(_ state: inout State, _ current: RunLoop? = nil) {
        state.loops.endWaits(by: clocks.now, of: current)
        state.clockTimers.fire(clocks)
    }

    /// Whether nothing is ready, and nothing becomes ready while peers and tasks have time for it.
    private func isQuiet() -> Bool {
        let loops = state.withLock { Array($0.loops.waiting.values) }
        let hasPeers = loops.contains(where: hasPeers)
        // In a simulation they run on its loop.
        let hasTasks = simulation == nil && (servesTask || loops.contains { $0.loop.hasExecutors })
        var tasks = hasTasks ? TaskWatch(taskThreads) : nil
        var (waited, pause) = (0, Self.shortestPause)
        while true {
            let isOver = (waited >= Self.quietPeriod || !hasPeers) && tasks?.isOver(after: waited) ?? true
            // Afterwards: what a thread has made ready before it slept.
            if loops.contains(where: { $0.wait.isReady }) { return false }
            if isOver || waited >= Self.longestQuietPeriod { return true }
            usleep(UInt32(pause))
            waited += pause
            pause = min(2 * pause, Self.longestPause)
        }
    }

    /// Whether a loop waits for a descriptor that other code may make ready.
    private func hasPeers(_ loop: DomainLoops.Waiting) -> Bool {
        // World says what this means for pipes.
        simulation == nil
            && state.withLock { state in
                loop.wait.descriptors.contains {
                    !state.clockTimers.contains($0)
                        && state.ownDescriptors[$0] != inodeNumber(of: $0)
                }
            }
    }

    /// Moves the clock without running the calling thread's loop.
    func skip(_ duration: Duration) {
        wakeLoops { state in
            guard !state.hasEnded else { return }
            clocks.skip(duration.wholeNanoseconds)
            serveDates(&state)
        }
    }

    /// Stops the loop when nothing is scheduled, until ``endStoppingWhenIdle()``.
    func beginStoppingWhenIdle() {
        state.withLock { state in
            state.idleWaitCount += 1
            state.isIdle = false
        }
    }

    func endStoppingWhenIdle() {
        state.withLock { state in
            state.idleWaitCount -= 1
            // What a callback schedules after a nested call keeps the outer one.
            state.isIdle = false
        }
    }

    var hasBecomeIdle: Bool { state.withLock { $0.isIdle } }

    /// Adds descriptors that only code of the same threads makes ready, and at once.
    func addOwn(_ descriptors: [CInt]) {
        state.withLock { state in
            for descriptor in descriptors { state.ownDescriptors[descriptor] = inodeNumber(of: descriptor) }
        }
    }

    /// Removes descriptors that are about to be closed.
    func removeOwn(_ descriptors: [CInt]) {
        state.withLock { state in for descriptor in descriptors { state.ownDescriptors[descriptor] = nil } }
    }

    // MARK: The order of what is ready

    func order(of count: Int) -> [Int] {
        let key = ObjectIdentifier(RunLoop.current)
        return state.withLock { state in
            guard var generator = state.generators[key] else { return Array(0..<count) }
            defer { state.generators[key] = generator }
            return (0..<count).shuffled(using: &generator)
        }
    }

    // MARK: Work elsewhere

    func beginBlocking() {
        // They wait in real time meanwhile.
        wakeLoops { state in
            state.blockedCount += 1
            clocks.run()
        }
    }

    func endBlocking() {
        wakeLoops { state in
            state.blockedCount -= 1
            stopClock(state)
        }
    }

    func didWait() {
        let key = ObjectIdentifier(RunLoop.current)
        state.withLock { state in
            state.loops.setBusy(key)
            stopClock(state)
        }
    }

    /// While code runs the clock stands still, unless a thread is blocked.
    private func stopClock(_ state: borrowing State) {
        if state.blockedCount == 0, !state.hasEnded { clocks.stop(at: clocks.now) }
    }

    func beginWork() { state.withLock { $0.workCount += 1 } }

    func endWork() {
        wakeLoops { state in
            state.workCount -= 1
            if state.workCount == 0 { stopClock(state) }
        }
    }

    func noteWork(while isRunning: @escaping @Sendable () -> Bool) {
        state.withLock { $0.workChecks.append(isRunning) }
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
        wakeLoops { state in
            clocks.setLead(of: CLOCK_REALTIME, to: date.wholeNanoseconds - clocks.now)
            state.clockTimers.noteClockSet(clocks)
        }
    }

    func suspend(for duration: Duration) {
        wakeLoops { state in
            for clock in [CLOCK_REALTIME, CLOCK_BOOTTIME] {
                clocks.setLead(of: clock, to: clocks.lead(of: clock) + duration.wholeNanoseconds)
            }
            // The kernel says so after a suspension, too.
            state.clockTimers.noteClockSet(clocks)
        }
    }
}

/// What tells an open socket or pipe from another one that gets its number; 0 once it is closed.
func inodeNumber(of descriptor: CInt) -> UInt64 {
    var status = stat()
    return unsafe fstat(descriptor, &status) == 0 ? UInt64(status.st_ino) : 0
}
