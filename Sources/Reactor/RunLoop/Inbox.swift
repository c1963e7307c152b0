import Synchronization

/// What other threads post to a loop, and what they may know about it: the only part of a loop that they touch.
///
/// It has one mutex, and an event counter (eventfd(2)) that is written only while the loop sleeps: a burst of posts
/// costs one system call.
final class Inbox: Sendable {
    /// A command for the loop's thread. It may drain the inbox recursively, through sources' `scheduled` and `cancelled`
    /// callbacks.
    typealias Command = @Sendable (RunLoop.Core) -> Void

    struct Contents {
        var blocks: [PostedBlock] = []
        var commands = Queue<Command>()
        var signalled: [RunLoop.Source] = []
        /// Those that other threads have given jobs.
        var executors: [RunLoop.Executor] = []
        /// Whether the loop's thread has carried out its last command, and run its last job.
        var hasEnded = false
    }

    /// The state of the outer activation, which an activation restores when it ends.
    struct OuterActivation {
        fileprivate let activation: ActivationWord
        fileprivate let hasConsumedWakeUp: Bool
        /// What has begun the inner one.
        fileprivate let callbackKind: CallbackKind
    }

    private let contents = Mutex(Contents())
    /// Whether the loop's thread has ended. Set with `contents` locked: nothing is posted after that.
    private let closed = Atomic(false)
    /// Set whenever anything is added to `contents`, so that a loop with nothing to collect need not lock.
    private let hasContents = Atomic(false)
    private let sleep = SleepState()
    private let hasReportedLateJobs = Atomic(false)
    private let activation = Atomic(ActivationWord.none)
    /// The activations that are to end: bit 0 is the outermost, and the last bit stands for all deeper ones, too.
    private let endRequests = Atomic<UInt64>(0)
    private let waiting = Atomic(false)
    /// The modes that the loop has run in.
    private let servedModes = Mutex(ModeSet())
    private let process = ProcessIdentity.current
    private let common = Mutex(RunLoop.firstCommonModes)
    /// The loop's name, for messages.
    let loopName: String
    /// Whether the debug mode reports that the loop belongs to a thread of a pool.
    let isReportedForPool: Bool
    let meter: LoopMeter

    init(loopName: String, isReportedForPool: Bool = false) {
        (self.loopName, self.isReportedForPool) = (loopName, isReportedForPool)
        meter = LoopMeter(loopName: loopName)
    }

    // MARK: From any thread

    var currentMode: RunLoop.Mode? { activation.load(ordering: .relaxed).mode }

    var isWaiting: Bool { waiting.load(ordering: .relaxed) }

    /// Whether another event loop hosts the innermost activation.
    var isHosted: Bool { activation.load(ordering: .relaxed).isHosted }

    /// Whether the loop has ever run.
    var hasRun: Bool { servedModes.withLock { !$0.isEmpty } }

    /// The modes that the loop has run in, and `.common` if one of them is common.
    var modesThatRan: ModeSet {
        var modes = servedModes.withLock { $0 }
        if modes.intersects(commonModes) { modes.insert(.common) }
        return modes
    }

    /// How many blocks and executors that the loop has yet to take in wait for each set of modes.
    var postedCounts: [ModeSet: Int] {
        contents.withLock { contents in
            let modes = contents.blocks.map(\.modes) + contents.executors.map(\.modes)
            return Dictionary(modes.map { ($0, 1) }, uniquingKeysWith: +)
        }
    }

    /// The loop's common set: what ``RunLoop/Mode/common`` stands for.
    var commonModes: ModeSet { common.withLock { $0 } }

    /// False if `mode` is a common one already.
    func insertCommonMode(_ mode: RunLoop.Mode) -> Bool { common.withLock { $0.insert(mode) } }

    /// Whether this process is a child of fork(2) and its parent made the inbox. The thread that would collect from it does
    /// not exist in the child, and its lock may be held permanently.
    @inline(__always)
    var belongsToParent: Bool { !process.isCurrent }

    /// Posts a block that tells the meter where it was posted.
    func post(
        _ block: @escaping @Sendable () -> Void, _ modes: ModeSet, isSource: Bool, _ file: StaticString,
        _ line: UInt
    ) {
        let name = ItemName.make(nil, file, line).naming("block posted by \(currentThreadName)")
        post(
            PostedBlock(modes: modes, isSource: isSource) { [meter] in
                meter.rename(name)
                block()
            })
    }

    /// Posts a block; releases it if the loop's thread has ended.
    func post(_ block: PostedBlock) {
        if add({ $0.blocks.append(block) }) { wakeUp() }
    }

    /// Posts a command; false if the loop's thread has ended.
    @discardableResult
    func post(_ command: @escaping Command) -> Bool {
        guard add({ $0.commands.append(command) }) else { return false }
        wakeUp()
        return true
    }

    /// Posts a command that releases what belongs to the loop's thread. Unlike other commands it is accepted while the loop
    /// ends; false once that thread has released everything.
    func postRelease(_ command: @escaping Command) -> Bool {
        guard !belongsToParent, add(isLate: true, { $0.commands.append(command) }) else { return false }
        wakeUp()
        return true
    }

    /// Whether the loop's thread has ended; in a child of fork(2), those of the parent's loops have.
    var isClosed: Bool { closed.load(ordering: .relaxed) || belongsToParent }

    /// Posts a signal of `source`; unlike the other posts this does not wake the loop. False if the loop's thread has
    /// ended.
    func postSignal(of source: RunLoop.Source) -> Bool { add { $0.signalled.append(source) } }

    /// Wakes the loop for jobs that wait in `executor`, also while it ends. False once its thread runs no more jobs.
    func noteJobs(of executor: RunLoop.Executor) -> Bool {
        if belongsToParent { ProcessIdentity.refuseParentsLoop() }
        guard add(isLate: true, { $0.executors.append(executor) }) else { return false }
        wakeUp()
        return true
    }

    /// Returns true once, so that late jobs are reported only once.
    func beginReportOfLateJobs() -> Bool { !hasReportedLateJobs.exchange(true, ordering: .relaxed) }

    func stop() {
        let changed = updateActivation { activation in
            if activation.depth > 0 { activation.isStopRequested = true }
        }
        if changed.depth > 0 { wakeUp() }
    }

    /// Changes the innermost activation, and returns what it is then.
    @discardableResult
    private func updateActivation(_ change: (inout ActivationWord) -> Void) -> ActivationWord {
        var seen = activation.load(ordering: .relaxed)
        while true {
            var wanted = seen
            change(&wanted)
            let (isDone, current) = activation.weakCompareExchange(
                expected: seen, desired: wanted, ordering: .acquiringAndReleasing)
            if isDone { return wanted }
            seen = current
        }
    }

    /// Ends the activation at `depth`, and those that begin there afterwards, once its callback has returned.
    /// Activations that are nested in it continue. The outermost one has depth 1.
    func requestEnd(ofActivation depth: Int) {
        endRequests.bitwiseOr(Self.bit(of: depth), ordering: .releasing)
        wakeUp()
    }

    func withdrawEnd(ofActivation depth: Int) {
        endRequests.bitwiseAnd(~Self.bit(of: depth), ordering: .relaxed)
    }

    @inline(never)
    func isEndRequested(ofActivation depth: Int) -> Bool {
        endRequests.load(ordering: .acquiring) & Self.bit(of: depth) != 0
    }

    private static func bit(of depth: Int) -> UInt64 { 1 << (min(depth, UInt64.bitWidth) - 1) }

    /// How much is waiting to be collected: for a description.
    var pendingCounts: (blocks: Int, commands: Int, signals: Int) {
        contents.withLock { ($0.blocks.count, $0.commands.count, $0.signalled.count) }
    }

    /// - Parameter isLate: Whether this also adds while the loop ends. The caller has then checked the process.
    private func add(isLate: Bool = false, _ change: (inout Contents) -> Void) -> Bool {
        guard isLate || !belongsToParent else { return false }
        return contents.withLock { contents in
            guard !(isLate ? contents.hasEnded : closed.load(ordering: .relaxed)) else { return false }
            change(&contents)
            hasContents.store(true, ordering: .releasing)
            return true
        }
    }

    func wakeUp() { sleep.wakeUp { if LoopDiagnostics.isMeasuring { noteWaker() } } }

    private func noteWaker() { meter.noteWaker(currentThreadName) }

    // MARK: From the loop's thread

    /// How many activations are in progress, one within the other.
    var activationCount: Int { activation.load(ordering: .relaxed).depth }

    /// Requests one more pass before the loop sleeps.
    func requestPass() {
        if !sleep.isPassRequested { wakeUp() }
    }

    /// Wakes the loop if the event loop that hosts it is waiting for it: then this thread is running that loop's code.
    func wakeIfHosted() {
        if sleep.isAsleep { wakeUp() }
    }

    /// Whether there is something to collect.
    var hasSomething: Bool { hasContents.load(ordering: .acquiring) }

    /// Makes ``hasSomething`` true, for the rest of what has been collected.
    func noteRest() { hasContents.store(true, ordering: .relaxed) }

    /// Exchanges what has been posted for `empty`, whose storage is reused.
    func collect(_ empty: inout Contents) {
        contents.withLock { contents in
            swap(&contents, &empty)
            hasContents.store(false, ordering: .relaxed)
        }
    }

    /// Begins an activation, which has its own requests to stop.
    func beginActivation(in mode: RunLoop.Mode, isHosted: Bool = false) -> OuterActivation {
        // Other threads change nothing but the request to stop, which the exchange takes out.
        let inner = activation.load(ordering: .relaxed).nested(in: mode, isHosted: isHosted)
        return OuterActivation(
            activation: activation.exchange(inner, ordering: .acquiringAndReleasing),
            hasConsumedWakeUp: sleep.beginActivation(),
            callbackKind: meter.exchangeCallbackKind(.none))
    }

    /// Returns to the outer activation, which must make a pass for any wake-up that the inner one has consumed: what was
    /// posted may be for the outer mode.
    func endActivation(_ outer: OuterActivation) {
        // A request that the inner activation has not answered ends with it.
        activation.store(outer.activation, ordering: .releasing)
        _ = meter.exchangeCallbackKind(outer.callbackKind)
        let consumed = sleep.endActivation(outerHasConsumed: outer.hasConsumedWakeUp)
        if consumed, outer.activation.depth > 0 { sleep.requestPass() }
    }

    /// Changes the mode of an activation that another event loop hosts.
    func setMode(_ mode: RunLoop.Mode) { updateActivation { $0 = $0.moved(to: mode) } }

    /// Whether the activation is to end; if so, takes that it was asked to.
    func takeStopRequest() -> Bool {
        guard isStopRequested else { return false }
        updateActivation { $0.isStopRequested = false }
        return true
    }

    var isStopRequested: Bool {
        let activation = activation.load(ordering: .acquiring)
        if activation.isStopRequested { return true }
        guard endRequests.load(ordering: .relaxed) != 0 else { return false }
        return isEndRequested(ofActivation: activation.depth)
    }

    /// Begins a pass, which answers all requests for one so far: it sees everything that was posted before them.
    func beginPass() { sleep.beginPass() }

    /// Announces that the loop sleeps until `counter` is written. False if it must make a pass, and not sleep.
    @inline(always)
    func beginSleep(on counter: CInt) -> Bool {
        sleep.announce(counter)
        // A stop may have come after the last pass looked for one and before this one took its wake-up.
        let mustPass = sleep.isPassRequested || isStopRequested
        if mustPass { endSleep() }
        return !mustPass
    }

    func endSleep() { sleep.end() }

    /// Whether another thread has written the counter that the loop slept on, or is about to.
    var isWokenByThread: Bool { !sleep.isAsleep }

    /// Refuses further posts, and waits for the threads that are writing to a counter that is about to be closed.
    func close() {
        contents.withLock { _ in closed.store(true, ordering: .relaxed) }
        sleep.close()
    }

    /// Closes the inbox to everything, unless work is pending; returns whether it did.
    ///
    /// - Parameter handOver: Called first, before another thread finds that the loop has ended.
    func end(_ handOver: () -> Void) -> Bool {
        contents.withLock { contents in
            guard contents.commands.isEmpty, contents.executors.isEmpty else { return false }
            handOver()
            contents.hasEnded = true
            return true
        }
    }

    /// Notes that the loop runs in a mode for the first time.
    func noteFirstRun(in mode: RunLoop.Mode) { _ = servedModes.withLock { $0.insert(mode) } }

    func setWaiting(_ isWaiting: Bool) { waiting.store(isWaiting, ordering: .relaxed) }
}
