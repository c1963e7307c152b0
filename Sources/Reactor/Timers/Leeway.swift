/// How late a timer may be, in four bytes; and whether it is set aside. Pure.
///
/// Exact up to 33 ms, and beyond that rounded down, by less than a millionth.
struct Leeway: Equatable {
    /// From the lowest bit: whether it is set aside, six bits of exponent, twenty-five of mantissa.
    private var bits: UInt32

    private static var mantissaBits: Int { 25 }

    /// - Parameter nanoseconds: Zero or more.
    @inline(__always)
    init(nanoseconds: Int64, isSetAside: Bool = false) {
        let exponent = max(0, Int64.bitWidth - nanoseconds.leadingZeroBitCount - Self.mantissaBits)
        let mantissa = UInt32(truncatingIfNeeded: nanoseconds >> Int64(exponent))
        bits = mantissa << 7 | UInt32(exponent) << 1 | (isSetAside ? 1 : 0)
    }

    var nanoseconds: Int64 { Int64(bits >> 7) << Int64(bits >> 1 & 63) }

    /// An element that is set aside stays in the queue, but is neither due nor waited for.
    var isSetAside: Bool {
        get { bits & 1 != 0 }
        set { bits = bits & ~1 | (newValue ? 1 : 0) }
    }
}
