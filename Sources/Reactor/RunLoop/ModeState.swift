/// A view of what a loop keeps for one mode; or, in the pseudo-mode `.common`, for all common modes together.
///
/// ``OwnedModeState`` owns what this is a view of. The view is not a class, because a pass looks at a dozen of these
/// properties: checks for overlapping accesses and reference counts would more than double the instructions of an event.
///
/// `@safe`: the loop's core owns the states until the loop ends, and only it, its other states and its passes hold views.
/// One thread uses them. No access calls a client's code or destroys an item, so none overlaps another.
@safe
@dynamicMemberLookup
struct ModeState {
    struct Plain {
        let mode: RunLoop.Mode
        /// The state of the common modes if this mode is one of them, else an empty one.
        var shared: ModeState
        /// Made when the mode first runs or gets a descriptor; the common modes' state never has one.
        var poller: Poller?
        /// Whether sources in this mode need watches: it has run, or has a poller.
        var isStarted = false
        /// Whether the kernel has refused to watch a descriptor of the mode.
        var needsRetry = false
        /// Whether the loop has run in the mode.
        var hasRun = false
        /// How many blocks a pass may run for this mode, including ordered ones and executors with jobs.
        var blockCount = 0
    }

    /// Apart from `Plain`, because key paths do not lead to what cannot be copied.
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
        _read { yield contents.ready }
    }

    var timers: TimerQueue<Timer> {
        _read { yield contents.timers }
        nonmutating _modify { yield &contents.timers }
    }

    var signals: SignalQueue {
        _read { yield contents.signals }
        nonmutating _modify { yield &contents.signals }
    }

    var observers: ObserverList {
        _read { yield contents.observers }
        nonmutating _modify { yield &contents.observers }
    }

    var sources: ItemTable<RunLoop.Source> {
        _read { yield contents.sources }
        nonmutating _modify { yield &contents.sources }
    }

    var eventSources: ItemTable<EventSource> {
        _read { yield contents.eventSources }
        nonmutating _modify { yield &contents.eventSources }
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

    /// - Parameter shared: Nil for a state that shares nothing, and has nothing to share.
    init(_ mode: RunLoop.Mode, shared: ModeState? = nil) {
        let address = UnsafeMutablePointer<ModeState.Contents>.allocate(capacity: 1)
        let state = unsafe ModeState(address: address)
        unsafe address.initialize(
            to: .init(plain: .init(mode: mode, shared: shared ?? state)))
        self.state = state
    }

    deinit {
        unsafe state.address.deinitialize(count: 1).deallocate()
    }
}

extension ModeState {
    /// Whether there is something to run for. Observers do not count; nor do blocks, which only start an activation.
    var hasItems: Bool { !eventSources.isEmpty || !timers.isEmpty || !sources.isEmpty }

    // MARK: Polling, in a mode that has a poller

    @inline(__always)
    func prepareToWait() -> CInt { usePoller { $0.prepareToWait() } }

    @inline(__always)
    func poll(until time: Int64) { usePoller { $0.poll(until: time) } }

    func setTimerOfHost(_ time: Int64) -> Bool { usePoller { $0.setTimerOfHost(time) } }

    /// Retains nothing. Proof: a mode keeps its poller until the loop ends.
    @inline(__always)
    private func usePoller<Result>(_ body: (Poller) -> Result) -> Result {
        unsafe Unmanaged.passUnretained(self.poller!)._withUnsafeGuaranteedRef(body)
    }
}

extension RunLoop {
    /// What a pass looks at: the state of the running mode, and that of the common modes if it is one of them.
    struct RunningMode {
        let own: ModeState
        /// What is ready in the mode.
        let ready: ReadyQueue

        init(own: ModeState) { (self.own, ready) = (own, own.ready) }

        /// The common modes' state; an empty one if the mode is not common. Looked up each time, because a callback may
        /// make the running mode common.
        var common: ModeState {
            own.shared
        }
    }
}

extension RunLoop.RunningMode {
    var hasTimers: Bool { !own.timers.isEmpty || !common.timers.isEmpty }

    var blockCount: Int { own.blockCount &+ common.blockCount }

    var hasSignals: Bool { !own.signals.isEmpty || !common.signals.isEmpty }

    /// The activities that the observers of both want.
    var observedActivities: RunLoop.Activities { own.observers.activities.union(common.observers.activities) }
}

/// The states of a loop's modes, and which of them are common.
struct ModeTable {
    /// By the modes' numbers.
    private var states: [OwnedModeState?] = []
    /// Shared by all common modes.
    private let ownedCommonItems: OwnedModeState
    /// Shared by all other modes; always empty.
    private let ownedNoItems = OwnedModeState(.nowhere)
    /// The loop's common set, as of the last time that the inbox was drained: a pass reads it without a lock.
    private(set) var common = RunLoop.firstCommonModes

    init() { ownedCommonItems = OwnedModeState(.common, shared: ownedNoItems.state) }

    /// What all common modes share.
    var commonItems: ModeState { ownedCommonItems.state }

    @inline(__always)
    func known(_ mode: RunLoop.Mode) -> ModeState? {
        if mode == .common { return commonItems }
        let index = Int(mode.index)
        return index < states.count ? states[index]?.state : nil
    }

    var allKnown: [ModeState] { [commonItems] + states.compactMap { $0?.state } }

    mutating func add(_ mode: RunLoop.Mode) {
        while states.count <= Int(mode.index) { states.append(nil) }
        let shared = common.contains(mode) ? ownedCommonItems : ownedNoItems
        states[Int(mode.index)] = OwnedModeState(mode, shared: shared.state)
    }

    mutating func makeCommon(_ mode: RunLoop.Mode) {
        common.insert(mode)
        known(mode)?.shared = commonItems
    }

    mutating func removeAll() { states = [] }
}
