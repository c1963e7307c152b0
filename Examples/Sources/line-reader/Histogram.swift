/// A histogram of numbers in constant memory. Numbers below 16 have a bucket each; each larger power of two has eight
/// buckets.
struct Histogram {
    private var counts = [UInt32](repeating: 0, count: 512)
    private var total = 0

    mutating func add(_ number: Int) {
        counts[Self.bucket(for: max(0, number))] += 1
        total += 1
    }

    /// The upper bound of the bucket that has the `percent`th percentile; zero if the histogram is empty.
    func percentile(_ percent: Int) -> Int {
        var remaining = (total * percent + 99) / 100
        for (index, count) in counts.enumerated() where count > 0 {
            remaining -= Int(count)
            if remaining <= 0 { return Self.upperBound(ofBucket: index) }
        }
        return 0
    }

    private static func bucket(for number: Int) -> Int {
        guard number >= 16 else { return number }
        let exponent = Int.bitWidth - 1 - number.leadingZeroBitCount
        return 16 + (exponent - 4) * 8 + (number >> (exponent - 3)) & 7
    }

    private static func upperBound(ofBucket index: Int) -> Int {
        guard index >= 16 else { return index }
        let (power, eighth) = (index - 16).quotientAndRemainder(dividingBy: 8)
        return (8 + eighth + 1) << (power + 1) - 1
    }
}
