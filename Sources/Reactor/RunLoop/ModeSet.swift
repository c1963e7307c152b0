import Synchronization

/// A set of modes: half a word of bits for the first thirty-two names of the process, and the number of a set
/// for later ones.
///
/// A plain value, free to copy: it travels with every timer, source and posted block.
struct ModeSet: Equatable {
    private var low: UInt32 = 0
    private var later: LaterModes = .none

    init() {}

    init(_ mode: RunLoop.Mode) { insert(mode) }

    init(_ modes: some Sequence<RunLoop.Mode>) {
        for mode in modes { insert(mode) }
    }

    var isEmpty: Bool { low == 0 && later == .none }

    /// The only member of a set that has one; nil for every other set.
    var single: RunLoop.Mode? {
        guard later == .none, low.nonzeroBitCount == 1 else { return nil }
        return RunLoop.Mode(Int32(low.trailingZeroBitCount))
    }

    func contains(_ mode: RunLoop.Mode) -> Bool {
        if mode.index < 32 { return low & (1 << UInt32(mode.index)) != 0 }
        return later != .none && later.indices.contains(mode.index)
    }

    @discardableResult
    mutating func insert(_ mode: RunLoop.Mode) -> Bool {
        guard !contains(mode) else { return false }
        if mode.index < 32 {
            low |= 1 << UInt32(mode.index)
        } else {
            later = LaterModes(later.indices.union([mode.index]))
        }
        return true
    }

    @discardableResult
    mutating func remove(_ mode: RunLoop.Mode) -> Bool {
        guard contains(mode) else { return false }
        subtract(ModeSet(mode))
        return true
    }

    mutating func formUnion(_ other: ModeSet) {
        low |= other.low
        if other.later != .none { later = LaterModes(later.indices.union(other.later.indices)) }
    }

    mutating func subtract(_ other: ModeSet) {
        low &= ~other.low
        if other.later != .none { later = LaterModes(later.indices.subtracting(other.later.indices)) }
    }

    func subtracting(_ other: ModeSet) -> ModeSet {
        var copy = self
        copy.subtract(other)
        return copy
    }

    /// The members, in the order in which the process came to know their names.
    var members: Members { Members(low: low, later: later == .none ? [] : later.indices.sorted(by: >)) }

    struct Members: Sequence, IteratorProtocol {
        fileprivate var low: UInt32
        /// The last one first.
        fileprivate var later: [Int32]

        var first: RunLoop.Mode? { first { _ in true } }

        mutating func next() -> RunLoop.Mode? {
            guard low != 0 else { return later.popLast().map { RunLoop.Mode($0) } }
            defer { low &= low - 1 }
            return RunLoop.Mode(Int32(low.trailingZeroBitCount))
        }
    }
}

/// A set of modes that came after the first thirty-two of the process, as its number: equal sets have one
/// number.
///
/// Sets are remembered for the life of the process, as the modes' names are. Few programs ever make one.
private struct LaterModes: Equatable {
    static var none: LaterModes { LaterModes(number: 0) }

    private let number: Int32

    private init(number: Int32) { self.number = number }

    init(_ indices: Set<Int32>) {
        number = Self.table.withLock { $0.number(of: indices) }
    }

    var indices: Set<Int32> {
        self == .none ? [] : Self.table.withLock { $0.sets[Int(number)] }
    }

    private struct Table {
        var sets: [Set<Int32>] = [[]]
        private var numbers: [Set<Int32>: Int32] = [[]: 0]

        mutating func number(of set: Set<Int32>) -> Int32 {
            if let known = numbers[set] { return known }
            let number = Int32(sets.count)
            sets.append(set)
            numbers[set] = number
            return number
        }
    }

    private static let table = Mutex(Table())
}
