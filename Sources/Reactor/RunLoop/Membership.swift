/// Which modes of one loop an item is in. Pure: it decides, the loop files the item accordingly.
///
/// It says what was asked for, whatever the common set was then: a mode that becomes common changes what follows from
/// that, and not the membership. So an item that has left a mode stays out of it though another thread had made it
/// common, and the loop has yet to take that in.
///
/// An item is filed in *groups*: one per mode, and one for the common set as a whole. An item that was added
/// to the common modes is filed once, in `.common`, and every mode of the common set looks there too; so
/// common items cost the same with two common modes as with ten, and a mode that becomes common has them at
/// once. Only when such an item is removed from a single mode is it filed in each of the others by itself.
struct Membership: Equatable {
    /// The modes that the item was added to by name.
    private var named = ModeSet()
    /// The common modes that it was removed from by name, though it is a common item.
    private var left = ModeSet()
    /// Whether the item belongs to the common items, and so to modes that become common later.
    private(set) var isCommon = false

    init() {}

    /// In one mode; or, with ``RunLoop/Mode/common``, among the common items.
    init(_ mode: RunLoop.Mode) {
        if mode == .common { isCommon = true } else { named = ModeSet(mode) }
    }

    var isEmpty: Bool { named.isEmpty && !isCommon }

    /// The mode that was asked for, if that is all: `Membership(mode)` is this one.
    var single: RunLoop.Mode? {
        if !isCommon { return named.single }
        return named.isEmpty && left.isEmpty ? .common : nil
    }

    /// Whether the item is in `mode`, given the loop's common set.
    func contains(_ mode: RunLoop.Mode, common: ModeSet) -> Bool {
        if mode == .common { return isCommon }
        return named.contains(mode) || (isCommon && common.contains(mode) && !left.contains(mode))
    }

    /// The modes, without the pseudo-mode `.common`, that the item is in.
    func modes(common: ModeSet) -> ModeSet {
        var modes = named
        if isCommon { modes.formUnion(common.subtracting(left)) }
        return modes
    }

    /// Where the item is filed; `.common` among them stands for the common set.
    func groups(common: ModeSet) -> ModeSet {
        guard isCommon else { return named }
        guard left.isEmpty else {
            let modes = modes(common: common)
            return modes.isEmpty ? ModeSet(.nowhere) : modes
        }
        var groups = named.subtracting(common)
        groups.insert(.common)
        return groups
    }

    mutating func add(_ mode: RunLoop.Mode, common: ModeSet) {
        if mode == .common {
            isCommon = true
            named.subtract(common)
            left = ModeSet()
        } else if isCommon, common.contains(mode) {
            left.remove(mode)
        } else {
            named.insert(mode)
        }
    }

    mutating func remove(_ mode: RunLoop.Mode, common: ModeSet) {
        if mode == .common {
            guard isCommon else { return }
            isCommon = false
            named.subtract(common)
            left = ModeSet()
        } else {
            named.remove(mode)
            if isCommon, common.contains(mode) { left.insert(mode) }
        }
    }
}

/// Where an item is filed: in a group of modes of its loop, under a number that the group has given it.
struct Place {
    let group: RunLoop.Mode
    let slot: Int32
}

/// Where one item is filed.
struct Places {
    private var list = ShortList<Place>()

    var isEmpty: Bool { list.isEmpty }

    /// The groups that it is filed in.
    var groups: ModeSet { ModeSet(list.lazy.map(\.group)) }

    /// Takes the item out of the groups that are not wanted, and files it in those that are. The caller keeps the item
    /// alive meanwhile.
    mutating func follow(
        _ wanted: ModeSet, leave: (Place) -> Void, enter: (RunLoop.Mode) -> Int32
    ) {
        for place in list where !wanted.contains(place.group) { leave(place) }
        list.removeAll { !wanted.contains($0.group) }
        for mode in wanted.subtracting(groups).members {
            list.append(Place(group: mode, slot: enter(mode)))
        }
    }

    mutating func leaveAll(_ leave: (Place) -> Void) {
        for place in list { leave(place) }
        list = ShortList()
    }
}

/// The items of one kind in one group of modes, in no order. Each leaves at once, by the number that it was given.
struct ItemTable<Item>: ~Copyable {
    private var items = Vector<Item?>()
    private var free = Vector<Int32>()

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

    /// Takes out an item that the caller keeps alive.
    mutating func remove(_ slot: Int32) {
        items[Int(slot)] = nil
        free.append(slot)
    }
}
