/// Which modes of one loop an item is in. Pure: it decides, the loop files the item accordingly.
///
/// An item is filed in *groups*: one per mode, and one for the common set as a whole. An item that was added
/// to the common modes is filed once, in `.common`, and every mode of the common set looks there too; so
/// common items cost the same with two common modes as with ten, and a mode that becomes common has them at
/// once. Only when such an item is removed from a single mode is it filed in each of the others by itself.
struct Membership: Equatable {
    /// Where the item is filed; `.common` among them stands for the common set.
    private(set) var groups = ModeSet()
    /// Whether the item belongs to the common items, and so to modes that become common later.
    private(set) var isCommon = false

    init() {}

    /// In one mode; or, with ``RunLoop/Mode/common``, among the common items.
    init(_ mode: RunLoop.Mode) {
        groups = ModeSet(mode)
        isCommon = mode == .common
    }

    var isEmpty: Bool { groups.isEmpty && !isCommon }

    /// Whether the item is in `mode`, given the loop's common set.
    func contains(_ mode: RunLoop.Mode, common: ModeSet) -> Bool {
        if mode == .common { return isCommon }
        return groups.contains(mode) || (groups.contains(.common) && common.contains(mode))
    }

    /// The modes, without the pseudo-mode `.common`, that the item is in.
    func modes(common: ModeSet) -> ModeSet {
        var modes = groups
        if modes.remove(.common) { modes.formUnion(common) }
        modes.remove(.nowhere)
        return modes
    }

    mutating func add(_ mode: RunLoop.Mode, common: ModeSet) {
        if mode == .common {
            isCommon = true
            groups.subtract(common)
            groups.insert(.common)
        } else if !contains(mode, common: common) {
            groups.insert(mode)
        }
        groups.remove(.nowhere)
    }

    mutating func remove(_ mode: RunLoop.Mode, common: ModeSet) {
        if mode == .common {
            guard isCommon else { return }
            isCommon = false
            groups.remove(.common)
            groups.remove(.nowhere)
            groups.subtract(common)
        } else if !groups.remove(mode), groups.contains(.common), common.contains(mode) {
            groups.remove(.common)
            groups.formUnion(common)
            groups.remove(mode)
        }
        if isCommon, groups.isEmpty { groups.insert(.nowhere) }
    }

    /// Follows the loop's common set, which has just got `mode`.
    mutating func modeBecameCommon(_ mode: RunLoop.Mode) {
        guard isCommon else { return }
        if groups.contains(.common) { groups.remove(mode) } else { groups.insert(mode) }
        groups.remove(.nowhere)
    }
}
