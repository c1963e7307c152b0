/// Which modes of one loop an item is in. Pure: it decides where the item is entered, the loop enters it.
///
/// It records what the client asked for, whatever the common set was then. A mode that becomes common changes where the
/// item is entered, not the membership: an item removed from a mode stays out of it even if another thread has made the
/// mode common and the loop has yet to take that in.
///
/// A common item is entered once, in the pseudo-mode `.common`, and every mode of the common set looks there too. So
/// common items cost the same with two common modes as with ten, and a mode that becomes common has them at once. An item
/// that was removed from one common mode has a separate entry in each of the others.
struct Membership: Equatable {
    /// The modes that the item was added to by name.
    private var named = ModeSet()
    /// The common modes that a common item was removed from by name.
    private var excluded = ModeSet()
    /// Whether the item belongs to the common items, and so to modes that become common later.
    private(set) var isCommon = false

    init() {}

    /// In one mode; or, with ``RunLoop/Mode/common``, among the common items.
    init(_ mode: RunLoop.Mode) {
        if mode == .common { isCommon = true } else { named = ModeSet(mode) }
    }

    var isEmpty: Bool { named.isEmpty && !isCommon }

    /// The mode for which `Membership(mode)` equals this membership, if there is one.
    var single: RunLoop.Mode? {
        if !isCommon { return named.single }
        return named.isEmpty && excluded.isEmpty ? .common : nil
    }

    /// Whether the item is in `mode`, given the loop's common set.
    func contains(_ mode: RunLoop.Mode, common: ModeSet) -> Bool {
        if mode == .common { return isCommon }
        return named.contains(mode) || (isCommon && common.contains(mode) && !excluded.contains(mode))
    }

    /// The modes, without the pseudo-mode `.common`, that the item is in.
    func modes(common: ModeSet) -> ModeSet {
        var modes = named
        if isCommon { modes.formUnion(common.subtracting(excluded)) }
        return modes
    }

    /// The modes that the item is entered in; `.common` among them stands for the common set.
    func entryModes(common: ModeSet) -> ModeSet {
        guard isCommon else { return named }
        guard excluded.isEmpty else {
            let modes = modes(common: common)
            return modes.isEmpty ? ModeSet(.nowhere) : modes
        }
        var modes = named.subtracting(common)
        modes.insert(.common)
        return modes
    }

    mutating func add(_ mode: RunLoop.Mode, common: ModeSet) {
        if mode == .common {
            isCommon = true
            named.subtract(common)
            excluded = ModeSet()
        } else if isCommon, common.contains(mode) {
            excluded.remove(mode)
        } else {
            named.insert(mode)
        }
    }

    mutating func remove(_ mode: RunLoop.Mode, common: ModeSet) {
        if mode == .common {
            guard isCommon else { return }
            isCommon = false
            named.subtract(common)
            excluded = ModeSet()
        } else {
            named.remove(mode)
            if isCommon, common.contains(mode) { excluded.insert(mode) }
        }
    }
}

/// Where an item is entered: a mode of its loop, and the slot that the mode has given it.
struct ModeEntry: Equatable {
    let mode: RunLoop.Mode
    let slot: Int32
}

/// The entries of one item.
struct ModeEntries: Sequence {
    private var list = SmallArray<ModeEntry>()

    init() {}

    init(_ first: ModeEntry, _ others: [ModeEntry]) { list = SmallArray(first, others) }

    var isEmpty: Bool { list.isEmpty }

    var first: ModeEntry? { list.first }

    /// The modes that the item is entered in.
    var modes: ModeSet { list.reduce(into: ModeSet()) { $0.insert($1.mode) } }

    func makeIterator() -> SmallArray<ModeEntry>.Iterator { list.makeIterator() }

    /// Removes the item from the modes that are not wanted, and enters it in those that are. The caller keeps a
    /// reference to the item.
    mutating func update(
        _ wanted: ModeSet, remove: (ModeEntry) -> Void, insert: (RunLoop.Mode) -> Int32
    ) {
        if isEmpty, let only = wanted.single {
            list.append(ModeEntry(mode: only, slot: insert(only)))
            return
        }
        let known = modes
        guard wanted != known else { return }
        list.each { if !wanted.contains($0.mode) { remove($0) } }
        list.removeAll { !wanted.contains($0.mode) }
        for mode in wanted.subtracting(known).members {
            list.append(ModeEntry(mode: mode, slot: insert(mode)))
        }
    }

    mutating func removeAll(_ remove: (ModeEntry) -> Void) {
        list.each(remove)
        list = SmallArray()
    }
}

/// The items of one kind in one mode, in no order. Adding and removing one costs O(1).
struct ItemTable<Item>: ~Copyable {
    private var items = UniqueArray<Item?>()
    private var free = UniqueArray<Int32>()

    var isEmpty: Bool { items.count == free.count }
    var count: Int { items.count - free.count }
    var members: [Item] { items.indices.compactMap { items[$0] } }

    mutating func insert(_ item: Item) -> Int32 {
        guard free.isEmpty else {
            let slot = free.removeLast()
            items[Int(slot)] = item
            return slot
        }
        items.append(item)
        return Int32(items.count - 1)
    }

    /// Removes an item. The caller keeps a reference to it, so that it is not destroyed during the access to the table.
    mutating func remove(_ slot: Int32) {
        items[Int(slot)] = nil
        free.append(slot)
    }
}
