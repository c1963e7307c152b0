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
