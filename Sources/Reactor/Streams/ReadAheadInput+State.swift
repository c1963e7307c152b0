import SystemPackage

extension ReadAheadInput {
    /// What has been read ahead, and how far.
    struct State {
        /// Who is told of what has been read; nil unless open.
        var engine: StreamEngine?
        var chunks: [[UInt8]] = []
        var spare: [[UInt8]] = []
        /// How much of the first chunk has been taken.
        var taken = 0
        /// Where the next chunk begins in the file.
        var position = 0
        /// The bytes that have been read, and not claimed; nil if a read claims them.
        var unclaimed: Int?
        var isFetching = false
        var isAtEnd = false
        var fault: Errno?

        init(position: Int = 0) { self.position = position }

        /// Where the next byte to be taken is in the file.
        var offset: Int { position - (chunks.reduce(0) { $0 + $1.count } - taken) - (unclaimed ?? 0) }

        /// Whether a read would find something without going to the file.
        var hasNews: Bool { !chunks.isEmpty || isAtEnd || fault != nil }
    }

    /// What a read finds.
    enum Finding {
        case transfer(Transfer)
        case fault(Errno)
        /// Neither is anything there, nor is it being read: it begins at `position`.
        case nothing(position: Int)
        case onItsWay
    }
}

extension ReadAheadInput.State {
    /// Copies from what has been read ahead, which comes before a fault or the end.
    mutating func take(into buffer: UnsafeMutableRawBufferPointer) -> ReadAheadInput.Finding {
        guard let first = chunks.first else {
            if let fault { return .fault(fault) }
            if isAtEnd { return .transfer(Transfer(count: 0, isAtEnd: true)) }
            return isFetching ? .onItsWay : .nothing(position: position)
        }
        let count = min(buffer.count, first.count - taken)
        unsafe first.withUnsafeBytes { bytes in
            unsafe buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[taken...].prefix(count)))
        }
        taken += count
        unclaimed? += count
        if taken == first.count {
            taken = 0
            spare.append(chunks.removeFirst())
        }
        return .transfer(Transfer(count: count))
    }

    /// Goes on elsewhere in the file, which clears an end and a fault. False while the file is being read.
    mutating func move(to offset: Int) -> Bool {
        guard !isFetching else { return false }
        spare.append(contentsOf: chunks)
        chunks = []
        (taken, position, isAtEnd, fault) = (0, offset, false, nil)
        unclaimed = unclaimed.map { _ in 0 }
        return true
    }
}
