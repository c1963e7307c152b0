import Glibc

/// Pseudorandom numbers, the same in every program and every run (xorshift64*).
public struct RandomNumbers {
    private var state: UInt64 = 88_172_645_463_325_252

    /// Creates a generator with the seed that all programs use.
    public init() {}

    /// The next number, which is less than `limit`.
    public mutating func next(below limit: UInt64) -> Int64 {
        state ^= state >> 12
        state ^= state << 25
        state ^= state >> 27
        return Int64((state &* 2_685_821_657_736_338_717) % limit)
    }
}

/// A percentile of `sorted`.
public func percentile(_ percent: Double, of sorted: [Int64]) -> Int64 {
    sorted.isEmpty ? 0 : sorted[Int(percent / 100 * Double(sorted.count - 1) + 0.5)]
}

/// `number` with `digits` digits after the decimal point.
public func fixed(_ number: Double, _ digits: Int = 1) -> String {
    let scale = (0..<digits).reduce(1.0) { scale, _ in scale * 10 }
    let scaled = Int64((number.magnitude * scale).rounded())
    let sign = number < 0 ? "-" : ""
    let (whole, rest) = scaled.quotientAndRemainder(dividingBy: Int64(scale))
    guard digits > 0 else { return "\(sign)\(whole)" }
    let fraction = String(rest)
    return "\(sign)\(whole).\(String(repeating: "0", count: digits - fraction.count))\(fraction)"
}

/// Prints a program's columns, and exits without destroying its objects.
public func report(_ columns: [String]) -> Never {
    print(columns.joined(separator: " "))
    fflush(nil)
    _exit(0)
}
