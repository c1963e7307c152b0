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
        @safe @exclusivity(unchecked) private(set) unowned var loop: RunLoop!
        /// Unchecked, because ``changeModes(_:)`` changes a copy.
        @safe @exclusivity(unchecked) private var modes = ModeTable()
        /// The source of the numbers that order things by their arrival.
        private var lastSequence: UInt64 = 0
        /// Storage that collecting the inbox reuses.
        private var collected = Inbox.Contents()
        @safe @exclusivity(unchecked) private var commands = Commands()
        /// The blocks from the inbox; each mode counts its own.
        var blocks = BlockQueue()
        /// The executors that have jobs to run.
        var waitingExecutors: [RunLoop.Executor] = []
        /// What ends waits; made with the first mode's poller.
        var waker: Waker?
        /// The thread's timer slack (prctl(2)), in nanoseconds: the kernel may end a wait that much later.
        private(set) var timerSlack: Int64 = 0
        /// What drains libdispatch's main queue; nil on other loops, before the first activation, and as long as libdispatch
        /// has no descriptor.
        var mainQueue: MainQueueSource?
        /// Whether each pass serves the main queue itself: there is no descriptor, or the kernel does not watch it.
        var lacksMainQueue = false
        /// Whether the thread has run its last job.
        private(set) var hasEnded = false
        /// What lets another event loop run this one, while that lasts; the innermost of several.
        unowned var hosting: Hosting?

        init(identity: LoopIdentity, inbox: Inbox) {
            self.identity = identity
            (self.inbox, meter) = (inbox, inbox.meter)
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
            changeModes { $0.add(mode) }
            return modes.known(mode)!
        }

        /// Changes a copy: nothing may read the property while it changes, as the items that it releases could.
        private func changeModes(_ change: (inout ModeTable) -> Void) {
            var modes = modes
            change(&modes)
            self.modes = modes
        }

        @inline(__always)
        func knownState(of mode: Mode) -> ModeState? { modes.known(mode) }

        var commonItems: ModeState { modes.commonItems }

        var commonModes: ModeSet { modes.common }

        /// Notes that the loop runs in a mode.
        func noteRun(in state: ModeState) {
            guard !state.hasRun else { return }
            state.hasRun = true
            inbox.noteFirstRun(in: state.mode)
        }

        func running(_ mode: Mode) -> RunningMode { RunningMode(own: state(of: mode)) }

        var knownStates: [ModeState] { modes.allKnown }

        func modeBecameCommon(_ mode: Mode) {
            changeModes { $0.makeCommon(mode) }
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
            guard !commands.isRunningLate else { return }
            commands.isRunningLate = true
            while let command = commands.late.popFirst() {
                if inbox.hasSomething { runCommands() }
                command(self)
            }
            commands.isRunningLate = false
        }

        /// Whether commands are being carried out, and this is not the last of them.
        var hasMoreCommands: Bool { !commands.due.isEmpty }

        /// Carries out `command`, which registers a descriptor, after the other commands: a descriptor that one of them has
        /// closed must leave the pollers before another one with the same number is registered. If each command carried out
        /// the others first, the calls would nest as deep as there are commands.
        func runLater(_ command: @escaping Inbox.Command) { commands.late.append(command) }

        private func runCommands() {
            var contents = Inbox.Contents()
            swap(&contents, &collected)
            inbox.collect(&contents)
            // In the order of posting, before a command collects in turn.
            count(contents.blocks, by: 1)
            blocks.append(&contents.blocks)
            for executor in contents.executors { executor.receiveJobs(in: self) }
            contents.executors.removeAll(keepingCapacity: true)
            commands.due.takeAll(of: &contents.commands)
            while let command = commands.due.popFirst() {
                // A run of the loop within the command carries out the rest.
                if hasMoreCommands { inbox.noteRest() }
                command(self)
            }
            for source in contents.signalled { source.receiveSignal(in: self) }
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
        /// - Parameter isInTime: Whether the thread may keep running jobs: a task that never suspends for anything would
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
            changeModes { $0.removeAll() }
            (waitingExecutors, waker) = ([], nil)
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
            (mainQueue, lacksMainQueue) = (nil, false)
            var dropped = BlockQueue()
            swap(&dropped, &blocks)
            withExtendedLifetime(dropped) {}
        }
    }
}

/// The commands from the inbox, in the order in which they came. One may add others, and may have the rest carried out.
private struct Commands {
    var due = Queue<Inbox.Command>()
    /// Those that wait until the others have been carried out: they register descriptors.
    var late = Queue<Inbox.Command>()
    var isRunningLate = false
}
