import Synchronization

/// A set of modes that came after the first thirty-two of the process, as its number: equal sets have one
/// number.
///
/// Sets are remembered for the life of the process, as the modes' names are. Few programs ever make one.
struct LaterModes: Equatable {
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
