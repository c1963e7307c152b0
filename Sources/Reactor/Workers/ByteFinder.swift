import CReactorLinux

/// Finds one byte value in a run of bytes, a batch of offsets at a time.
@usableFromInline
struct ByteFinder {
    /// Enough to make a batch's fixed cost small, few enough to be made anew for every short push.
    private static let batch = 256
    /// What the scanner takes: offsets inside a batch have 32 bits.
    private static let window = 1 << 30

    private let wanted: UInt8
    private var next = 0
    /// Where the batch begins.
    @usableFromInline var start = 0
    /// How many offsets it has.
    @usableFromInline var count = 0
    /// The offsets, from `start`.
    @usableFromInline var offsets = InlineArray<256, UInt32>(repeating: 0)

    @usableFromInline
    init(_ wanted: UInt8) { self.wanted = wanted }

    /// Finds the next batch: false when there are no more.
    @usableFromInline
    mutating func advance(in bytes: RawSpan) -> Bool {
        count = 0
        while count == 0, next < bytes.byteCount {
            start = next
            let reach = min(bytes.byteCount - start, Self.window)
            count = scan(bytes.extracting(start..<start + reach))
            next = start + (count < Self.batch ? reach : Int(offsets[count - 1]) + 1)
        }
        return count > 0
    }

    private mutating func scan(_ bytes: RawSpan) -> Int {
        var target = offsets.mutableSpan
        return unsafe bytes.withUnsafeBytes { source in
            unsafe target.withUnsafeMutableBufferPointer { target in
                let first = unsafe source.baseAddress?.assumingMemoryBound(to: UInt8.self)
                let room = target.count
                return unsafe reactor_find_bytes(first, source.count, wanted, target.baseAddress, room)
            }
        }
    }
}

extension RawSpan {
    @inlinable
    subscript(offset: Int) -> UInt8 {
        unsafe unsafeLoad(fromByteOffset: offset, as: UInt8.self)  // checks its bounds
    }

    @unsafe
    @inlinable
    subscript(unchecked offset: Int) -> UInt8 {
        unsafe unsafeLoad(fromUncheckedByteOffset: offset, as: UInt8.self)
    }
}
