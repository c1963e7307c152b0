/// Counts numbers by their size, in as little memory for many as for a few: those from 16 on in classes an
/// eighth as wide as their numbers are great.
struct Histogram {
    private var counts = [UInt32](repeating: 0, count: 512)
    private var total = 0

    mutating func add(_ number: Int) {
        counts[Self.index(of: max(0, number))] += 1
        total += 1
    }

    /// A number that `percent` of those added do not exceed: the greatest of its class. Zero if there are
    /// none.
    func percentile(_ percent: Int) -> Int {
        var rest = (total * percent + 99) / 100
        for (index, count) in counts.enumerated() where count > 0 {
            rest -= Int(count)
            if rest <= 0 { return Self.greatestNumber(at: index) }
        }
        return 0
    }

    /// Beyond the first sixteen, each power of two has eight classes.
    private static func index(of number: Int) -> Int {
        guard number >= 16 else { return number }
        let exponent = Int.bitWidth - 1 - number.leadingZeroBitCount
        return 16 + (exponent - 4) * 8 + (number >> (exponent - 3)) & 7
    }

    private static func greatestNumber(at index: Int) -> Int {
        guard index >= 16 else { return index }
        let (power, eighth) = (index - 16).quotientAndRemainder(dividingBy: 8)
        return (8 + eighth + 1) << (power + 1) - 1
    }
}
