import SystemPackage

/// The run loops that a stream is scheduled on, and what each of them has done for it. Pure; part of
/// ``StreamMachine``.
struct StreamSchedule {
    /// The stream's state on one loop.
    struct Entry {
        let loop: LoopIdentity
        /// What the engine has on the loop. Kept for the engine alone; nil in tests.
        let attachment: ScheduledLoop?
        fileprivate(set) var membership = Membership()
        /// Whether the loop has the kernel watch the descriptor.
        fileprivate(set) var isWatched = false
        /// Whether the loop watches nothing until the delegate reads or writes: the kernel has repeated its
        /// report.
        fileprivate(set) var isDisarmed = false
        /// Whether the loop serves the stream in the modes of `membership`.
        fileprivate(set) var isUpToDate = false
        /// Whether an update has been requested from the loop's thread, which has not made it yet.
        fileprivate(set) var isUpdateRequested = false
    }

    /// What a loop has to do for the stream.
    struct Update {
        let membership: Membership
        /// Whether the kernel is to watch the descriptor.
        let isWatched: Bool
        /// Whether to signal the source, for an event that the kernel will not report.
        let isSignalled: Bool
    }

    /// The result of leaving a mode.
    enum Removal {
        case none
        /// The stream is still scheduled in another mode of the loop.
        case changed
        /// The stream is not scheduled on the loop any more.
        case left(Entry)
    }

    private var entries = SmallArray<Entry>()

    var isEmpty: Bool { entries.isEmpty }
    var hasSeveralLoops: Bool { entries.hasOthers }
    @inline(__always)
    var first: Entry? { entries.first }

    subscript(loop: LoopIdentity) -> Entry? {
        if let entry = entries.first, entry.loop == loop { return entry }
        return entries.hasOthers ? entries.first { $0.loop == loop } : nil
    }

    func contains(_ loop: LoopIdentity) -> Bool { self[loop] != nil }

    // MARK: Modes

    mutating func add(
        _ mode: RunLoop.Mode, of loop: LoopIdentity, common: ModeSet, _ attach: () -> ScheduledLoop?
    ) {
        if !contains(loop) { entries.append(Entry(loop: loop, attachment: attach())) }
        change(loop) { entry in
            entry.membership.add(mode, common: common)
            entry.isUpToDate = false
        }
    }

    mutating func remove(_ mode: RunLoop.Mode, of loop: LoopIdentity, common: ModeSet) -> Removal {
        let isLeft = change(loop) { entry in
            entry.membership.remove(mode, common: common)
            entry.isUpToDate = false
            return entry.membership.isEmpty
        }
        guard let isLeft else { return .none }
        return isLeft ? remove(loop).map { .left($0) } ?? .none : .changed
    }

    mutating func remove(_ loop: LoopIdentity) -> Entry? { entries.takeFirst { $0.loop == loop } }

    mutating func removeAll() -> SmallArray<Entry> {
        defer { entries = SmallArray() }
        return entries
    }

    // MARK: Updates

    @inline(__always)
    func isUpToDate(_ loop: LoopIdentity) -> Bool {
        if entries.first?.loop == loop { return entries.first!.isUpToDate }
        return entries.hasOthers && self[loop]?.isUpToDate ?? false
    }

    /// The loop stops watching the descriptor until the delegate reads or writes.
    mutating func disarm(on loop: LoopIdentity) {
        change(loop) { ($0.isDisarmed, $0.isWatched) = (true, false) }
    }

    mutating func noteUnwatched(on loop: LoopIdentity) { change(loop) { $0.isWatched = false } }

    /// Returns whether to ask the loop: false if an earlier request is pending.
    mutating func requestUpdate(of loop: LoopIdentity) -> Bool {
        change(loop) { entry in
            defer { entry.isUpdateRequested = true }
            return !entry.isUpdateRequested
        } ?? false
    }

    /// Takes what a loop has to do.
    ///
    /// - Parameter isWatched: Whether the kernel is to watch the descriptor, given ``Entry/isDisarmed``.
    mutating func update(
        _ loop: LoopIdentity, isAcknowledged: Bool, isSignalled: Bool, isWatched: (_ isDisarmed: Bool) -> Bool
    ) -> Update? {
        change(loop) { entry in
            if isAcknowledged { entry.isDisarmed = false }
            entry.isWatched = isWatched(entry.isDisarmed)
            (entry.isUpdateRequested, entry.isUpToDate) = (false, true)
            return Update(membership: entry.membership, isWatched: entry.isWatched, isSignalled: isSignalled)
        }
    }

    func entries(where isWanted: (Entry) -> Bool) -> SmallArray<Entry> {
        var wanted = SmallArray<Entry>()
        for entry in entries where isWanted(entry) { wanted.append(entry) }
        return wanted
    }

    @discardableResult
    @inline(__always)
    private mutating func change<Result>(
        _ loop: LoopIdentity, _ body: (inout Entry) -> Result
    ) -> Result? {
        entries.update(where: { $0.loop == loop }, body)
    }
}
