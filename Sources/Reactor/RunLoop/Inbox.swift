import Glibc
import Synchronization

/// A block that waits for a pass in one of its modes.
struct PostedBlock {
    let modes: ModeSet
    /// Whether running it counts as having handled a source.
    let isSource: Bool
    /// Nil once the loop has taken it.
    var body: (@Sendable () -> Void)?
}

/// What other threads leave for a loop, and what they may know about it. The only part of a loop that they
/// touch.
///
/// One mutex, and an event counter (eventfd(2)) that is written only while the loop sleeps: a burst of posts
/// costs one system call.
final class Inbox: Sendable {
    /// A change to what the loop serves. It may call `scheduled` and `cancelled` callbacks of sources, which may collect
    /// again.
    typealias Command = @Sendable (RunLoop.Core) -> Void

    struct Contents {
        var blocks: [PostedBlock] = []
        var commands: [Command] = []
        var signalled: [RunLoop.Source] = []
        /// Those that other threads have given jobs.
        var executors: [RunLoop.Executor] = []
    }

    /// What an activation finds, and restores when it ends.
    struct Outer {
        let mode: RunLoop.Mode?
        let isStopRequested: Bool
        let hasConsumedWakeUp: Bool
    }

    private let contents = Mutex(Contents())
    /// Whether the loop's thread has ended. Set with `contents` locked: nothing comes in after it.
    private let closed = Atomic(false)
    /// Set whenever `contents` gets anything: spares a loop with nothing to collect the lock.
    private let hasContents = Atomic(false)
    /// The loop owes one more pass before it sleeps. With `sleepingOn` this is the handshake that loses no
    /// wake-up: a poster sets this and then looks there, the loop sets that and then looks here.
    private let wakeUpRequested = Atomic(false)
    /// The event counter of the poller that the loop sleeps in; -1 while it does not.
    private let sleepingOn = Atomic<CInt>(-1)
    /// The activation has gone round for a wake-up, which an outer one may have been meant by.
    private let wakeUpConsumed = Atomic(false)
    /// How many threads are about to write to the counter that they found in `sleepingOn`.
    private let rousers = Atomic(0)
    private let stopRequested = Atomic(false)
    private let endRequested = Atomic(false)
    private let activations = Atomic(0)
    /// The running mode's index; -1 outside an activation.
    private let runningMode = Atomic<Int32>(-1)
    private let waiting = Atomic(false)
    private let forks = Fork.count

    // MARK: From any thread

    var currentMode: RunLoop.Mode? {
        let index = runningMode.load(ordering: .relaxed)
        return index < 0 ? nil : RunLoop.Mode(index)
    }

    var isWaiting: Bool { waiting.load(ordering: .relaxed) }

    /// Whether it was made before the process was forked, and so is the parent's: the thread that would collect from it
    /// is not in the child, and a lock may be held there for good.
    @inline(__always)
    var isOfParent: Bool { forks != Fork.count }

    func post(_ block: PostedBlock) {
        leave { $0.blocks.append(block) }
        rouse()
    }

    /// False if the loop's thread has ended, and so the command is not taken in.
    @discardableResult
    func post(_ command: @escaping Command) -> Bool {
        guard leave({ $0.commands.append(command) }) else { return false }
        rouse()
        return true
    }

    /// Whether the loop's thread has ended; in a child of fork(2), those of the parent's loops have.
    var isClosed: Bool { closed.load(ordering: .relaxed) || isOfParent }

    /// Remembers that `source` is signalled; unlike the others this does not wake the loop. False if the loop's thread
    /// has ended.
    func noteSignalled(_ source: RunLoop.Source) -> Bool { leave { $0.signalled.append(source) } }

    /// Wakes the loop for jobs that wait in `executor`. False if the loop's thread has ended.
    func noteJobs(of executor: RunLoop.Executor) -> Bool {
        guard leave({ $0.executors.append(executor) }) else { return false }
        rouse()
        return true
    }

    func wakeUp() { rouse() }

    func stop() {
        guard activations.load(ordering: .relaxed) > 0 else { return }
        stopRequested.store(true, ordering: .releasing)
        rouse()
    }

    /// Ends the outermost activation once its callout has returned, and leaves those that are nested in it
    /// alone.
    func stopOutermost() {
        endRequested.store(true, ordering: .releasing)
        rouse()
    }

    var isEndRequested: Bool { endRequested.load(ordering: .acquiring) }

    /// How much is waiting to be collected: for a dump.
    var backlog: (blocks: Int, commands: Int, signals: Int) {
        contents.withLock { ($0.blocks.count, $0.commands.count, $0.signalled.count) }
    }

    @discardableResult
    private func leave(_ change: (inout Contents) -> Void) -> Bool {
        guard !isOfParent else { return false }
        return contents.withLock { contents in
            guard !closed.load(ordering: .relaxed) else { return false }
            change(&contents)
            hasContents.store(true, ordering: .releasing)
            return true
        }
    }

    /// An exchange rather than a store: `beginPass` then sees what every poster before it has left.
    private func rouse() {
        _ = wakeUpRequested.exchange(true, ordering: .sequentiallyConsistent)
        guard sleepingOn.load(ordering: .sequentiallyConsistent) >= 0 else { return }
        rousers.add(1, ordering: .sequentiallyConsistent)
        let counter = sleepingOn.exchange(-1, ordering: .sequentiallyConsistent)
        if counter >= 0 { addOne(toEventCounter: counter) }
        rousers.subtract(1, ordering: .releasing)
    }

    // MARK: From the loop's thread

    /// How many activations are under way, one within the other.
    var activationCount: Int { activations.load(ordering: .relaxed) }

    /// Makes the loop, which is awake, go round once more before it sleeps.
    func owePass() {
        guard !wakeUpRequested.load(ordering: .relaxed) else { return }
        _ = wakeUpRequested.exchange(true, ordering: .sequentiallyConsistent)
    }

    /// Whether there is something to collect.
    var hasSomething: Bool { hasContents.load(ordering: .acquiring) }

    /// Exchanges what has come in for `empty`, whose storage is used again.
    func collect(_ empty: inout Contents) {
        contents.withLock { contents in
            swap(&contents, &empty)
            hasContents.store(false, ordering: .relaxed)
        }
    }

    /// Enters an activation, whose requests to stop are its own.
    func beginActivation(in mode: RunLoop.Mode) -> Outer {
        let outerMode = currentMode
        runningMode.store(mode.index, ordering: .relaxed)
        activations.add(1, ordering: .relaxed)
        return Outer(
            mode: outerMode,
            isStopRequested: stopRequested.exchange(false, ordering: .acquiringAndReleasing),
            hasConsumedWakeUp: wakeUpConsumed.exchange(false, ordering: .relaxed))
    }

    /// Returns to the outer activation, which owes a pass for any wake-up that the inner one has gone round
    /// for: what was posted may be the outer mode's.
    func endActivation(_ outer: Outer) {
        runningMode.store(outer.mode?.index ?? -1, ordering: .relaxed)
        // Before the activation is over, so that a `stop()` that comes between is not overwritten.
        stopRequested.store(outer.isStopRequested, ordering: .releasing)
        activations.subtract(1, ordering: .releasing)
        let consumed = wakeUpConsumed.load(ordering: .relaxed)
        wakeUpConsumed.store(consumed || outer.hasConsumedWakeUp, ordering: .relaxed)
        if consumed, outer.mode != nil {
            _ = wakeUpRequested.exchange(true, ordering: .sequentiallyConsistent)
        }
    }

    var isStopRequested: Bool {
        if stopRequested.load(ordering: .acquiring) { return true }
        return isEndRequested && activations.load(ordering: .relaxed) == 1
    }

    /// Begins a pass: whoever asked for one before has got it, and what they left before is seen.
    func beginPass() {
        // Most passes find nothing, and a look is cheaper than an exchange.
        guard wakeUpRequested.load(ordering: .acquiring),
            wakeUpRequested.exchange(false, ordering: .sequentiallyConsistent)
        else { return }
        wakeUpConsumed.store(true, ordering: .relaxed)
    }

    /// Announces that the loop sleeps until `counter` is written. False if it owes a pass: then it must not
    /// sleep.
    @inline(always)
    func fallAsleep(on counter: CInt) -> Bool {
        sleepingOn.store(counter, ordering: .sequentiallyConsistent)
        // A stop may have come after the last pass looked for one and before this one took its wake-up.
        let owesPass = wakeUpRequested.load(ordering: .sequentiallyConsistent) || isStopRequested
        if owesPass { awake() }
        return !owesPass
    }

    func awake() { sleepingOn.store(-1, ordering: .relaxed) }

    /// Takes in nothing more, and waits for those who are writing to a counter that is about to be closed.
    func close() {
        contents.withLock { _ in closed.store(true, ordering: .relaxed) }
        sleepingOn.store(-1, ordering: .sequentiallyConsistent)
        while rousers.load(ordering: .sequentiallyConsistent) > 0 { sched_yield() }
    }

    func setWaiting(_ isWaiting: Bool) { waiting.store(isWaiting, ordering: .relaxed) }
}
