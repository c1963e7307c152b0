import CReactorLinux

/// Where the lines of a chunk may end, and which of them are text.
///
/// Making a String of each line keeps a worker busier than reading keeps the reader of a file: so that one
/// finds the lines, and checks all of a chunk at once.
struct LineSurvey: Sendable {
    /// The most ends that are found; the framer finds the others. It bounds the memory, and does for lines of 70
    /// bytes or so in chunks of the usual size.
    static let capacity = 448
    /// The most bytes that are looked at: the offset in a `LineEnd` has 30 bits.
    private static let window = 1 << 30

    /// The ends, as `LineEnd` takes them, and room for more.
    private(set) var ends: [UInt32]
    /// How many ends there are.
    private(set) var count = 0
    /// No end before this is missing.
    private(set) var reach = 0

    /// Makes room for the ends in chunks of at most `size` bytes.
    init(upTo size: Int) { ends = [UInt32](repeating: 0, count: min(size, Self.capacity)) }

    /// Looks at a chunk that has just been read.
    ///
    /// - Parameter byte: What ends a line: an ASCII character.
    mutating func update(_ chunk: RawSpan, endingAt byte: UInt8) {
        let chunk = chunk.extracting(first: Self.window)
        count = unsafe chunk.withUnsafeBytes { chunk in
            let bytes = unsafe chunk.assumingMemoryBound(to: UInt8.self)
            return unsafe reactor_find_lines(bytes.baseAddress, bytes.count, byte, &ends, ends.count)
        }
        reach = count < ends.count ? chunk.byteCount : LineEnd(ends[count - 1]).offset + 1
    }
}
