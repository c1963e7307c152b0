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
        /// The blocks of this group alone.
        var blocks = BlockQueue()
        /// How many blocks a pass may run for this group, with those that wait for other modes too, and ordered ones.
        var blockCount = 0
        var sources: [ObjectIdentifier: RunLoop.Source] = [:]
    }

    /// These are apart, as no key path leads to what cannot be copied.
    private struct Storage: ~Copyable {
        var contents: Contents
        var timers = TimerQueue<Timer>()
        var signals = SignalQueue()
        var observers = ObserverList()
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

    var signals: SignalQueue {
        @inline(__always) _read { yield unsafe storage.pointee.signals }
        @inline(__always) nonmutating _modify { yield unsafe &storage.pointee.signals }
    }

    var observers: ObserverList {
        @inline(__always) _read { yield unsafe storage.pointee.observers }
        @inline(__always) nonmutating _modify { yield unsafe &storage.pointee.observers }
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

    /// Moves the blocks of this group alone to the end of `batch`; how many they are.
    func takeOwnBlocks(into batch: inout [BlockQueue.Entry]) -> Int {
        let count = self.blocks.count
        guard count > 0 else { return 0 }
        self.blocks.drain(into: &batch)
        self.blockCount -= count
        return count
    }
}
