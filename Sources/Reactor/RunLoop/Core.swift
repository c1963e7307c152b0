import CReactorLinux
import Synchronization

extension RunLoop {
    /// The part of a loop that only its own thread uses: the modes with the items registered in them, the commands and
    /// blocks from the inbox, and the passes (`RunLoop+Run.swift`).
    final class Core {
        let identity: LoopIdentity
        let inbox: Inbox
        let meter: LoopMeter
        /// The loop, which owns this. Set when its thread first asks for it.
        private(set) unowned var loop: RunLoop!
        /// By the modes' numbers.
        private var states: [OwnedModeState?] = []
        /// Shared by all common modes.
        private let ownedCommonItems: OwnedModeState
        /// Shared by all other modes; always empty.
        private let ownedNoItems = OwnedModeState(.nowhere)
        /// The loop's common set, as of the last time that the inbox was drained: a pass reads it without a lock.
        private(set) var commonModes = RunLoop.firstCommonModes
        /// The source of the numbers that order things by their arrival.
        private var lastSequence: UInt64 = 0
        /// Storage that collecting the inbox reuses.
        private var collected = Inbox.Contents()
        /// The commands being carried out.
        private var commands = CommandQueue()
        /// The commands that wait until the others have been carried out: they register descriptors.
        private var lateCommands = CommandQueue()
        private var isRunningLateCommands = false
        /// The blocks from the inbox; each mode counts its own.
        var blocks = BlockQueue()
        /// Storage that running blocks reuses; empty while a sweep uses it.
        var spareBatch: [PostedBlock] = []
        /// The executors that have jobs to run.
        var waitingExecutors: [RunLoop.Executor] = []
        /// What ends waits; made with the first mode's poller.
        var waker: Waker?
        /// The thread's timer slack (prctl(2)), in nanoseconds: the kernel may end a wait that much later.
        private(set) var timerSlack: Int64 = 0
        /// The source that drains libdispatch's main queue; only the main loop has one, from its first activation on.
        var mainQueue: MainQueueSource?
        /// Whether the main queue could not be watched yet because there were no descriptors.
        var lacksMainQueue = false
        /// Whether the thread has run its last job.
        private(set) var hasEnded = false
        /// What lets another event loop run this one, while that lasts; the innermost of several.
        unowned var hosting: Hosting?

        init(identity: LoopIdentity, inbox: Inbox) {
            self.identity = identity
            (self.inbox, meter) = (inbox, inbox.meter)
            ownedCommonItems = OwnedModeState(.common, shared: ownedNoItems.state)
        }

        func adopt(_ loop: RunLoop) {
            self.loop = loop
            timerSlack = reactor_timer_slack()
        }

        func nextSequence() -> UInt64 {
            lastSequence += 1
            return lastSequence
        }

        // MARK: Modes

        @inline(__always)
        func state(of mode: Mode) -> ModeState { knownState(of: mode) ?? makeState(of: mode) }

        @inline(never)
        private func makeState(of mode: Mode) -> ModeState {
            let shared = commonModes.contains(mode) ? ownedCommonItems.state : ownedNoItems.state
            let owned = OwnedModeState(mode, shared: shared)
            // Changed as a copy: nothing may read the property while it changes.
            var states = states
            while states.count <= Int(mode.index) { states.append(nil) }
            states[Int(mode.index)] = owned
            self.states = states
            return owned.state
        }

        @inline(__always)
        func knownState(of mode: Mode) -> ModeState? {
            if mode == .common { return commonItems }
            let index = Int(mode.index)
            return index < states.count ? states[index]?.state : nil
        }

        var commonItems: ModeState { ownedCommonItems.state }

        /// Notes that the loop runs in a mode.
        func noteRun(in state: ModeState) {
            guard !state.hasRun else { return }
            state.hasRun = true
            inbox.noteFirstRun(in: state.mode)
        }

        func running(_ mode: Mode) -> RunningMode { RunningMode(own: state(of: mode)) }

        var knownStates: [ModeState] {
            let states = states
            return [commonItems] + states.compactMap { $0?.state }
        }

        func modeBecameCommon(_ mode: Mode) {
            var commonModes = commonModes
            commonModes.insert(mode)
            self.commonModes = commonModes
            knownState(of: mode)?.shared = commonItems
            let states = knownStates
            for timer in states.flatMap({ $0.timers.elements }) {
                update(timer)
            }
            for source in states.flatMap({ $0.sources.members }) { source.change(in: loop) { _ in } }
            for entry in states.flatMap({ $0.observers.inOrder() }) { update(entry.observer) { _ in } }
            for source in states.flatMap({ $0.eventSources.members }) { updateLeniently(source) }
        }

        // MARK: The inbox

        /// Processes everything that other threads have posted.
        func drainInbox() {
            if inbox.hasSomething { drainContents() }
        }

        @inline(never)
        private func drainContents() {
            runCommands()
            guard !isRunningLateCommands else { return }
            isRunningLateCommands = true
            while let command = lateCommands.takeFirst() {
                if inbox.hasSomething { runCommands() }
                command(self)
            }
            isRunningLateCommands = false
        }

        /// Whether commands are being carried out, and this is not the last of them.
        var hasMoreCommands: Bool { !commands.isEmpty }

        /// Carries out `command`, which registers a descriptor, after the other commands: a descriptor that one of them has
        /// closed must leave the pollers before another one with the same number is registered. If each command carried out
        /// the others first, the calls would nest as deep as there are commands.
        func runLater(_ command: @escaping Inbox.Command) { lateCommands.append([command]) }

        private func runCommands() {
            var contents = Inbox.Contents()
            swap(&contents, &collected)
            inbox.collect(&contents)
            // In the order of posting, before a command collects in turn.
            count(contents.blocks, by: 1)
            blocks.append(&contents.blocks)
            for executor in contents.executors { executor.receiveJobs(in: self) }
            contents.executors.removeAll(keepingCapacity: true)
            commands.append(contents.commands)
            while let command = commands.takeFirst() {
                // A run of the loop within the command carries out the rest.
                if !commands.isEmpty { inbox.noteRest() }
                command(self)
            }
            for source in contents.signalled { source.receiveSignal(in: self) }
            contents.commands.removeAll(keepingCapacity: true)
            contents.signalled.removeAll(keepingCapacity: true)
            swap(&contents, &collected)
        }

        /// Adds the number of `blocks`, or subtracts it, in each of their modes.
        func count(_ blocks: [PostedBlock], by sign: Int) {
            var rest = blocks[...]
            while let modes = rest.first?.modes {
                let end = rest.firstIndex { $0.modes != modes } ?? rest.endIndex
                let count = sign * (end - rest.startIndex)
                self.count(count, in: modes)
                rest = rest[end...]
            }
        }

        /// Adds `count` blocks or executors for a pass in any of `modes`; subtracts them if it is negative.
        func count(_ count: Int, in modes: ModeSet) {
            guard !modes.isEmpty else { return }
            for mode in modes.members { state(of: mode).blockCount += count }
            meter.waiting.add(count)
        }

        // MARK: The end

        /// Releases all items, ends tasks' waits and runs remaining jobs. Code that this calls can still get the loop, but
        /// neither run it nor add to it.
        ///
        /// The thread runs jobs until none is queued: those of the tasks whose waits end here are queued by then. What such
        /// a task does after it has waited for something else, which the loop knows nothing of, is left to ``LateJobs``.
        ///
        /// - Parameter isInTime: Whether the thread may go on running jobs: a task that never suspends for anything would
        ///   keep it forever.
        /// - Returns: Whether no job is left.
        func end(servingJobsWhile isInTime: () -> Bool) -> Bool {
            hosting?.loopEnded()
            inbox.close()
            serveJobs(while: isInTime)
            if LoopDiagnostics.isReporting { reportLeftovers() }
            endItems()
            repeat { serveJobs(while: isInTime) } while !endPosts()
            let isComplete = waitingExecutors.isEmpty
            (states, waitingExecutors, waker) = ([], [], nil)
            return isComplete
        }

        private func serveJobs(while isInTime: () -> Bool) {
            repeat { drainInbox() } while isInTime() && runJobs { _ in true }
        }

        /// Hands remaining and future jobs to ``LateJobs``. False if new work has arrived.
        private func endPosts() -> Bool {
            if let first = waitingExecutors.first {
                first.reportLateJobs()
                // Waits for the thread's start while nothing is locked.
                LateJobs.start()
            }
            return inbox.end {
                hasEnded = true
                for executor in waitingExecutors { executor.leaveJobs() }
            }
        }

        private func endItems() {
            let states = knownStates
            for timer in states.flatMap({ $0.timers.elements }) { release(timer) }
            for source in states.flatMap({ $0.sources.members }) {
                source.change(in: loop) { $0 = Membership() }
            }
            for entry in states.flatMap({ $0.observers.inOrder() }) { entry.observer.invalidate() }
            for source in states.flatMap({ $0.eventSources.members }) {
                source.endWithLoop(loop)
            }
            for executor in loop.executors.withLock({ $0 }) { executor.endWaits() }
            mainQueue = nil
            var dropped = BlockQueue()
            swap(&dropped, &blocks)
            withExtendedLifetime(dropped) {}
        }
    }
}

/// Commands in the order in which they came. A command may append others, and may have the rest carried out.
private struct CommandQueue {
    private var commands: [Inbox.Command] = []
    /// The index of the first that has not been taken.
    private var next = 0

    var isEmpty: Bool { next == commands.count }

    mutating func append(_ more: [Inbox.Command]) { commands.append(contentsOf: more) }

    mutating func takeFirst() -> Inbox.Command? {
        guard next < commands.count else {
            commands.removeAll(keepingCapacity: true)
            next = 0
            return nil
        }
        next += 1
        return commands[next - 1]
    }
}
