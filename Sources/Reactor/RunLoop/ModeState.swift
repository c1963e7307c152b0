/// What one loop keeps for one group of modes: a mode by itself, or the common modes together.
///
/// A handle. The loop's core makes what it stands for and frees it when it ends itself; nobody else keeps a
/// handle. Not a class, because every pass looks at a dozen of these properties, and a class would check each
/// access for overlapping ones and count references. There is nothing to find: one thread uses it, and no
/// access calls user code.
@safe
@dynamicMemberLookup
struct ModeState {
    struct Contents {
        let mode: RunLoop.Mode
        /// What the mode shares with others: the group of the common modes if it is one of them, else an empty one.
        var shared: ModeState
        /// Made when the mode first runs or gets a descriptor; the group of the common modes never has one.
        var poller: Poller?
        /// Whether the kernel has refused the poller a descriptor.
        var lacksWatches = false
        var blocks = BlockQueue()
        /// In ascending order, equal ones in the order of arrival.
        var observers: [(sequence: UInt64, observer: RunLoop.Observer)] = []
        /// Every activity that an observer here wants: most passes need not look further.
        var observedActivities: RunLoop.Activities = []
        var sources: [ObjectIdentifier: RunLoop.Source] = [:]
        /// Sources that were signalled, as the signals came in. One that has been served since may still be
        /// among them.
        var signalled: [(sequence: UInt64, source: RunLoop.Source)] = []
        /// The sources that a sweep is serving, the next one last. A nested sweep goes on with the same
        /// agenda.
        var agenda: [(sequence: UInt64, source: RunLoop.Source)] = []
    }

    /// Timers and descriptors are apart, as no key path leads to what cannot be copied.
    private struct Storage: ~Copyable {
        var contents: Contents
        var timers = TimerQueue<Timer>()
        var descriptors = Roster()
    }

    private let storage: UnsafeMutablePointer<Storage>

    /// - Parameter shared: Nil for a group that shares nothing with another, and has nothing to share.
    init(_ mode: RunLoop.Mode, shared: ModeState? = nil) {
        unsafe storage = .allocate(capacity: 1)
        unsafe storage.initialize(to: Storage(contents: Contents(mode: mode, shared: shared ?? self)))
    }

    /// Lets go of all that is filed here.
    func clear() {
        unsafe storage.pointee = Storage(contents: Contents(mode: self.mode, shared: self.shared))
    }

    /// Ends what this and all its copies stand for.
    func free() {
        let poller = self.poller
        unsafe storage.deinitialize(count: 1)
        unsafe storage.deallocate()
        poller?.free()
    }

    var timers: TimerQueue<Timer> {
        @inline(__always) _read { yield unsafe storage.pointee.timers }
        @inline(__always) nonmutating _modify { yield unsafe &storage.pointee.timers }
    }

    var descriptors: Roster {
        @inline(__always) _read { yield unsafe storage.pointee.descriptors }
        @inline(__always) nonmutating _modify { yield unsafe &storage.pointee.descriptors }
    }

    subscript<Value>(dynamicMember property: KeyPath<Contents, Value>) -> Value {
        @inline(__always) get { unsafe storage.pointee.contents[keyPath: property] }
    }

    subscript<Value>(dynamicMember property: WritableKeyPath<Contents, Value>) -> Value {
        @inline(__always) get { unsafe storage.pointee.contents[keyPath: property] }
        @inline(__always) nonmutating _modify { yield unsafe &storage.pointee.contents[keyPath: property] }
    }
}

extension ModeState {
    /// Whether there is something to run for. Observers do not count; nor do blocks, which only start an
    /// activation.
    var hasItems: Bool { !self.descriptors.isEmpty || !self.timers.isEmpty || !self.sources.isEmpty }

    /// Whether a source may wait to be served.
    var hasSignals: Bool { !self.signalled.isEmpty || !self.agenda.isEmpty }

    /// Puts what has been signalled on the agenda.
    func makeAgenda() {
        guard !self.signalled.isEmpty else { return }
        self.agenda += self.signalled
        self.signalled.removeAll(keepingCapacity: true)
        self.agenda.sort { ($0.source.order, $0.sequence) > ($1.source.order, $1.sequence) }
    }

    func insert(_ observer: RunLoop.Observer, sequence: UInt64) {
        let place = self.observers.firstIndex { $0.observer.order > observer.order }
        self.observers.insert((sequence, observer), at: place ?? self.observers.endIndex)
        self.observedActivities.formUnion(observer.activities)
    }

    func remove(_ observer: RunLoop.Observer) {
        self.observers.removeAll { $0.observer === observer }
        self.observedActivities = self.observers.reduce(into: []) { $0.formUnion($1.observer.activities) }
    }
}
