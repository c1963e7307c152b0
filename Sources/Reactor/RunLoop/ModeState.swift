/// What one loop keeps for one group of modes: a mode by itself, or the common modes together. Confined to the loop's
/// thread.
///
/// A view of what an ``OwnedModeState`` owns. Not a class, because every pass looks at a dozen of these properties, and a
/// class would check each access for overlapping ones and count references. `@safe` is right because the loop's core owns
/// the states until the loop's end, views are kept nowhere else, one thread uses them, and no access calls a closure.
@safe
@dynamicMemberLookup
struct ModeState {
    struct Plain {
        let mode: RunLoop.Mode
        /// What the mode shares with others: the group of the common modes if it is one of them, else an empty one.
        var shared: ModeState
        /// Made when the mode first runs or gets a descriptor; the group of the common modes never has one.
        var poller: Poller?
        /// Whether the mode has run, or has a poller: its sources record what they are ready for.
        var isStarted = false
        /// Whether the kernel has refused the poller a descriptor.
        var lacksWatches = false
        /// The blocks of this group alone.
        var blocks = BlockQueue()
        /// How many blocks a pass may run for this group, with those that wait for other modes too, and ordered ones.
        var blockCount = 0
    }

    /// No key path leads to what cannot be copied.
    fileprivate struct Contents: ~Copyable {
        var plain: Plain
        /// What is ready in the mode and has not been served yet.
        let ready = ReadyQueue()
        var timers = TimerQueue<Timer>()
        var signals = SignalQueue()
        var observers = ObserverList()
        var sources = ItemTable<RunLoop.Source>()
        var eventSources = ItemTable<EventSource>()
    }

    fileprivate let address: UnsafeMutablePointer<Contents>

    private var contents: Contents {
        @inline(__always) _read { yield unsafe address.pointee }
        @inline(__always) nonmutating _modify { yield unsafe &address.pointee }
    }

    var ready: ReadyQueue {
        @inline(__always) _read { yield contents.ready }
    }

    var timers: TimerQueue<Timer> {
        @inline(__always) _read { yield contents.timers }
        @inline(__always) nonmutating _modify { yield &contents.timers }
    }

    var signals: SignalQueue {
        @inline(__always) _read { yield contents.signals }
        @inline(__always) nonmutating _modify { yield &contents.signals }
    }

    var observers: ObserverList {
        @inline(__always) _read { yield contents.observers }
        @inline(__always) nonmutating _modify { yield &contents.observers }
    }

    var sources: ItemTable<RunLoop.Source> {
        @inline(__always) _read { yield contents.sources }
        @inline(__always) nonmutating _modify { yield &contents.sources }
    }

    var eventSources: ItemTable<EventSource> {
        @inline(__always) _read { yield contents.eventSources }
        @inline(__always) nonmutating _modify { yield &contents.eventSources }
    }

    subscript<Value>(dynamicMember property: WritableKeyPath<Plain, Value>) -> Value {
        @inline(__always) get { contents.plain[keyPath: property] }
        @inline(__always) nonmutating _modify { yield &contents.plain[keyPath: property] }
    }

    var mode: RunLoop.Mode { contents.plain.mode }
}

/// Owns what a ``ModeState`` is a view of.
final class OwnedModeState {
    let state: ModeState

    /// - Parameter shared: Nil for a group that shares nothing with another, and has nothing to share.
    init(_ mode: RunLoop.Mode, shared: ModeState? = nil) {
        let address = UnsafeMutablePointer<ModeState.Contents>.allocate(capacity: 1)
        let state = unsafe ModeState(address: address)
        unsafe address.initialize(to: .init(plain: .init(mode: mode, shared: shared ?? state)))
        self.state = state
    }

    deinit {
        unsafe state.address.deinitialize(count: 1)
        unsafe state.address.deallocate()
    }
}

extension ModeState {
    /// Whether there is something to run for. Observers do not count; nor do blocks, which only start an
    /// activation.
    var hasItems: Bool { !eventSources.isEmpty || !timers.isEmpty || !sources.isEmpty }

    // MARK: Polling, in a mode that has a poller

    @inline(__always)
    func prepareToWait() -> CInt { usePoller { $0.prepareToWait() } }

    @inline(__always)
    func poll(until time: Int64) { usePoller { $0.poll(until: time) } }

    /// Retains nothing: a mode keeps the poller that it has.
    @inline(__always)
    private func usePoller<Answer>(_ body: (Poller) -> Answer) -> Answer {
        unsafe Unmanaged.passUnretained(self.poller!)._withUnsafeGuaranteedRef(body)
    }

    // MARK: Blocks

    /// Moves the blocks of this group alone to the end of `batch`; how many they are.
    func takeOwnBlocks(into batch: inout [BlockQueue.Entry]) -> Int {
        let count = self.blocks.count
        guard count > 0 else { return 0 }
        self.blocks.drain(into: &batch)
        self.blockCount -= count
        return count
    }
}

extension RunLoop {
    /// The two groups of items that a pass looks at.
    struct Groups {
        /// The mode's own.
        let own: ModeState
        /// What is ready in the mode.
        let ready: ReadyQueue

        init(own: ModeState) { (self.own, ready) = (own, own.ready) }

        /// What all common modes share; empty for a mode that is not one of them. Looked up each time, as a callback
        /// may make the mode common while it runs.
        var common: ModeState {
            @inline(__always) get { own.shared }
        }
    }
}

extension RunLoop.Groups {
    var haveTimers: Bool { !own.timers.isEmpty || !common.timers.isEmpty }

    var blockCount: Int { own.blockCount + common.blockCount }

    var haveSignals: Bool { !own.signals.isEmpty || !common.signals.isEmpty }

    /// What the observers of the groups want to be told of.
    var observedActivities: RunLoop.Activities { own.observers.activities.union(common.observers.activities) }
}
