import CReactorLinux

/// Where a line may end, and what is known of the bytes since the end before: nothing, unless somebody has
/// looked at them as text.
@usableFromInline
struct LineEnd {
    @usableFromInline let bits: UInt32

    /// Takes what a scanner has written.
    @inlinable
    init(_ bits: UInt32) { self.bits = bits }

    /// An end of which nothing is known.
    @inlinable static var unknown: LineEnd { LineEnd(0) }

    /// Where the last byte of the terminator is.
    @inlinable var offset: Int { Int(bits & 0x3FFF_FFFF) }

    /// Whether the bytes are known to be UTF-8.
    var isText: Bool { bits & REACTOR_LINE_IS_TEXT != 0 }

    /// Whether the bytes are known to be ASCII.
    var isASCII: Bool { bits & REACTOR_LINE_IS_ASCII != 0 }
}
