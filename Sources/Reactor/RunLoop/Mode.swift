import Synchronization

extension RunLoop {
    /// The name of a set of timers, sources and observers that a run loop serves together.
    ///
    /// A loop runs in one mode at a time and serves only what was added to that mode. Two modes with the same raw value
    /// are the same mode. Names are kept for the life of the process, so make modes from a fixed set of names, not from
    /// data.
    ///
    /// ```swift
    /// extension RunLoop.Mode {
    ///     static let dialog = RunLoop.Mode("dialog")
    /// }
    /// RunLoop.main.addCommonMode(.dialog)
    /// RunLoop.main.run(in: .dialog)
    /// ```
    ///
    /// The raw values are Cocoa's, so that archived names and other libraries' constants mean the same here.
    public struct Mode: RawRepresentable, Hashable, Sendable {
        let index: Int32

        /// The mode called `rawValue`.
        public init(rawValue: String) { index = ModeNames.index(of: rawValue) }

        /// The mode called `rawValue`.
        public init(_ rawValue: String) { self.init(rawValue: rawValue) }

        init(_ index: Int32) { self.index = index }

        /// The mode's name.
        public var rawValue: String { ModeNames.name(at: index) }

        /// The mode for everything but tracking and dialogs; the one that `run()` runs.
        public static var `default`: Mode { Mode(0) }

        /// Stands for every mode of a loop's common set, and is never itself the mode that runs.
        public static var common: Mode { Mode(1) }

        /// The mode that runs while the user drags. A member of every loop's common set from the start.
        public static var tracking: Mode { Mode(2) }

        /// AppKit's name for its tracking mode: another mode than ``tracking``. Common only after
        /// ``RunLoop/addCommonMode(_:)``, where in AppKit it is from the start.
        public static var eventTracking: Mode { Mode(3) }

        /// AppKit's mode for modal panels. Common only after ``RunLoop/addCommonMode(_:)``.
        public static var modalPanel: Mode { Mode(4) }

        /// Never runs, and equals no mode made from a name. A common item that was removed from each common mode
        /// by name is registered here, so that a mode that becomes common others still gets it.
        static var nowhere: Mode { Mode(5) }

        // Written out because those of a raw representable type would compare the names.

        /// Whether the two have the same name.
        public static func == (left: Mode, right: Mode) -> Bool { left.index == right.index }

        /// Hashes the name's number.
        public func hash(into hasher: inout Hasher) { hasher.combine(index) }
    }
}

extension RunLoop.Mode: CustomStringConvertible {
    /// The mode's name.
    public var description: String { rawValue }
}

/// Each name's number, because modes are compared and looked up far more often than they are named.
private enum ModeNames {
    private struct Table {
        var names = [
            "kCFRunLoopDefaultMode", "kCFRunLoopCommonModes", "UITrackingRunLoopMode",
            "NSEventTrackingRunLoopMode", "NSModalPanelRunLoopMode", "(nowhere)",
        ]
        /// Without the last of the names above, which no client can name.
        lazy var indices = Dictionary(uniqueKeysWithValues: zip(names, 0..<RunLoop.Mode.nowhere.index))
    }

    private static let table = Mutex(Table())

    static func index(of name: String) -> Int32 {
        table.withLock { table in
            if let known = table.indices[name] { return known }
            let index = Int32(table.names.count)
            table.indices[name] = index
            table.names.append(name)
            return index
        }
    }

    static func name(at index: Int32) -> String {
        table.withLock { $0.names[Int(index)] }
    }
}

/// A set of modes: thirty-two bits for the first thirty-two names of the process, and the number of a set for later ones.
///
/// A trivial value, so that copying costs nothing: every timer, source and posted block has one.
struct ModeSet: Hashable {
    private var low: UInt32 = 0
    private var others: InternedModes = .none

    init() {}

    init(_ mode: RunLoop.Mode) { insert(mode) }

    @inline(__always)
    init(_ modes: some Sequence<RunLoop.Mode>) {
        for mode in modes { insert(mode) }
    }

    var isEmpty: Bool { low == 0 && others == .none }

    /// The only member of a set that has one; nil for every other set.
    var single: RunLoop.Mode? {
        guard others == .none, low.nonzeroBitCount == 1 else { return nil }
        return RunLoop.Mode(Int32(low.trailingZeroBitCount))
    }

    func contains(_ mode: RunLoop.Mode) -> Bool {
        if mode.index < 32 { return low & (1 << UInt32(mode.index)) != 0 }
        return others != .none && others.indices.contains(mode.index)
    }

    func intersects(_ other: ModeSet) -> Bool {
        if low & other.low != 0 { return true }
        return others != .none && other.others != .none
            && !others.indices.isDisjoint(with: other.others.indices)
    }

    @discardableResult
    @inline(__always)
    mutating func insert(_ mode: RunLoop.Mode) -> Bool {
        guard mode.index < 32 else { return insertOther(mode) }
        let bit: UInt32 = 1 &<< UInt32(mode.index)
        defer { low |= bit }
        return low & bit == 0
    }

    @inline(never)
    private mutating func insertOther(_ mode: RunLoop.Mode) -> Bool {
        guard !contains(mode) else { return false }
        others = InternedModes(others.indices.union([mode.index]))
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
        if other.others != .none { others = InternedModes(others.indices.union(other.others.indices)) }
    }

    mutating func subtract(_ other: ModeSet) {
        low &= ~other.low
        if other.others != .none { others = InternedModes(others.indices.subtracting(other.others.indices)) }
    }

    func subtracting(_ other: ModeSet) -> ModeSet {
        var copy = self
        copy.subtract(other)
        return copy
    }

    /// The members, in the order in which the process first used their names.
    var members: Members { Members(low: low, others: others == .none ? [] : others.indices.sorted(by: >)) }

    struct Members: Sequence, IteratorProtocol {
        fileprivate var low: UInt32
        /// The last one first.
        fileprivate var others: [Int32]

        var first: RunLoop.Mode? { first { _ in true } }

        mutating func next() -> RunLoop.Mode? {
            guard low != 0 else { return others.popLast().map { RunLoop.Mode($0) } }
            defer { low &= low - 1 }
            return RunLoop.Mode(Int32(low.trailingZeroBitCount))
        }
    }
}

/// A set of modes after the first thirty-two of the process, as a number: equal sets have the same number.
///
/// Sets are kept for the life of the process, as the modes' names are. Few programs ever make one.
private struct InternedModes: Hashable {
    static var none: InternedModes { InternedModes(number: 0) }

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
