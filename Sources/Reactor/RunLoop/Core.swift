import CReactorLinux
import Synchronization

extension RunLoop {
    /// What a loop's own thread knows: the modes, what is filed in them, and the activation under way.
    final class Core {
        let home: LoopIdentity
        let inbox: Inbox
        /// The loop, which owns this. Set when its thread first asks for it.
        private(set) unowned var loop: RunLoop!
        /// By the modes' numbers.
        private var states: [OwnedModeState?] = []
        /// What all common modes share.
        private let ownedCommonItems: OwnedModeState
        /// What the other modes share: nothing, ever.
        private let ownedNoItems = OwnedModeState(.nowhere)
        /// The common set, as far as it has come home: a pass asks for it without a lock.
        private(set) var commonModes = RunLoop.firstCommonModes
        /// Numbers everything that has an order of arrival.
        private var lastSequence: UInt64 = 0
        /// Storage that collecting the inbox uses again and again.
        private var collected = Inbox.Contents()
        /// The commands that are being carried out, and which of them is next.
        private var commands: [Inbox.Command] = []
        private var nextCommand = 0
        /// What waits until there are no more commands, and which of it is next.
        private var registrations: [Inbox.Command] = []
        private var nextRegistration = 0
        private var isRegistering = false
        /// The blocks that wait for several modes.
        var sharedBlocks = SharedBlocks()
        /// Storage that running blocks uses again and again; empty while a sweep is using it.
        var spareBatch: [BlockQueue.Entry] = []
        /// The executors that have jobs to run.
        var waitingExecutors: [RunLoop.Executor] = []
        /// What ends waits; made with the first mode's poller.
        var waker: Waker?
        /// How late this thread's waits may be by the kernel's own rule, in nanoseconds.
        private(set) var timerSlack: Int64 = 0
        /// What serves libdispatch's main queue; only the main loop has one, from its first activation on.
        var mainQueue: DescriptorSource?
        /// Whether it could not be watched yet, for want of descriptors.
        var lacksMainQueue = false
        private(set) var isMain = false

        init(home: LoopIdentity, inbox: Inbox) {
            self.home = home
            self.inbox = inbox
            ownedCommonItems = OwnedModeState(.common, shared: ownedNoItems.state)
        }

        func adopt(_ loop: RunLoop, isMain: Bool) {
            self.loop = loop
            self.isMain = isMain
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
            // A copy, as nothing may look at the states while they change.
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

        /// What a pass in `mode` looks at.
        func groups(of mode: Mode) -> Groups { Groups(own: state(of: mode)) }

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
                timer.state.withLock { file(timer, &$0) }
            }
            for source in states.flatMap({ $0.sources.members }) { source.change(in: loop) { _ in } }
            for observer in states.flatMap({ $0.observers.members }) { update(observer) { _ in } }
            for source in states.flatMap({ $0.eventSources.members }) { refile(source) }
        }

        // MARK: The inbox

        /// Takes in what other threads have left.
        @inline(__always)
        func collect() {
            if inbox.hasSomething || nextCommand < commands.count { collectContents() }
        }

        @inline(never)
        private func collectContents() {
            takeContents()
            guard !isRegistering else { return }
            isRegistering = true
            while nextRegistration < registrations.count {
                if inbox.hasSomething { takeContents() }
                nextRegistration += 1
                registrations[nextRegistration - 1](self)
            }
            registrations.removeAll(keepingCapacity: true)
            (nextRegistration, isRegistering) = (0, false)
        }

        /// Whether commands are being carried out, and this is not the last of them.
        var hasMoreCommands: Bool { nextCommand < commands.count }

        /// Has `command`, which registers a descriptor, carried out after the other commands: one of them may unregister
        /// what had the same number.
        func registerLater(_ command: @escaping Inbox.Command) { registrations.append(command) }

        private func takeContents() {
            var contents = Inbox.Contents()
            swap(&contents, &collected)
            inbox.collect(&contents)
            // In the order of posting, before a command collects in turn.
            for index in contents.blocks.indices { queue(&contents.blocks[index]) }
            for executor in contents.executors { executor.receiveJobs(in: self) }
            contents.executors.removeAll(keepingCapacity: true)
            commands.append(contentsOf: contents.commands)
            while nextCommand < commands.count {
                nextCommand += 1
                commands[nextCommand - 1](self)
            }
            commands.removeAll(keepingCapacity: true)
            nextCommand = 0
            for source in contents.signalled { source.fileSignal(in: self) }
            contents.commands.removeAll(keepingCapacity: true)
            contents.signalled.removeAll(keepingCapacity: true)
            contents.blocks.removeAll(keepingCapacity: contents.blocks.capacity <= BlockQueue.keptCapacity)
            swap(&contents, &collected)
        }

        private func queue(_ block: inout PostedBlock) {
            guard let body = block.body.take() else { return }
            let entry = BlockQueue.Entry(sequence: nextSequence(), isSource: block.isSource, body: body)
            if let mode = block.modes.single {
                let state = state(of: mode)
                state.blockCount += 1
                return state.blocks.append(entry)
            }
            for mode in block.modes.members { state(of: mode).blockCount += 1 }
            sharedBlocks.append(entry, in: block.modes)
        }

        // MARK: The end

        /// Releases everything, when the thread ends. What that calls can still ask for this loop, but
        /// neither run it nor add to it.
        func end() {
            inbox.close()
            collect()
            checkJobsFinished()
            let states = knownStates
            for timer in states.flatMap({ $0.timers.elements }) { forget(timer) }
            for source in states.flatMap({ $0.sources.members }) {
                source.change(in: loop) { $0 = Membership() }
            }
            for observer in states.flatMap({ $0.observers.members }) { observer.invalidate() }
            for source in states.flatMap({ $0.eventSources.members }) {
                source.loopEnded(loop)
                source.end()
            }
            mainQueue = nil
            let blocks = (states.map { $0.blocks.take() }, sharedBlocks)
            self.states = []
            sharedBlocks = SharedBlocks()
            waker = nil
            withExtendedLifetime(blocks) {}
        }
    }
}
