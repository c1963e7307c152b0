import Dispatch
import Glibc
import Synchronization
import SystemPackage

/// A regular file, or a device that epoll(7) refuses. On a run loop a Dispatch queue reads it ahead, up to
/// two chunks.
///
/// Off a run loop, the thread that reads the stream reads the file.
final class ReadAheadInput: InputBackend {
    /// The largest read whose copy stays in a core's own cache.
    static let chunkSize = 65_536
    /// One that the delegate reads, and one that is being fetched.
    static let mostChunks = 2

    private let shared: SharedDescriptor
    private let isSeekable: Bool
    private let state: Mutex<State>
    private let fetch = DispatchGroup()
    private let process = ProcessIdentity.current

    init(_ shared: SharedDescriptor, isSeekable: Bool) throws(Errno) {
        self.shared = shared
        self.isSeekable = isSeekable
        guard isSeekable else {
            state = Mutex(State())
            return
        }
        state = Mutex(State(position: try shared.seek(to: 0, from: SEEK_CUR)))
    }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        state.withLock { $0.engine = engine }
        return self
    }

    /// Sets the offset behind the last byte that the client read, for other users of the descriptor.
    func close() throws(Errno) {
        let (offset, dropped) = state.withLock { ($0.offset, $0.engine.take()) }
        withExtendedLifetime(dropped) {}
        if isSeekable { _ = try? shared.seek(to: offset, from: SEEK_SET) }
        shared.close()
    }

    func closeDescriptor() { shared.close() }

    /// Counts bytes as taken only when they are claimed, from now on. The offset that ``close()`` leaves is
    /// behind the last claimed byte.
    func beginClaiming() { state.withLock { $0.unclaimed = 0 } }

    /// Claims `count` bytes that have been read.
    func claim(_ count: Int) { state.withLock { $0.unclaimed? -= count } }

    /// How many bytes are left to read, as far as is known.
    var expectedByteCount: Int? {
        guard isSeekable, let status = try? shared.status() else { return nil }
        return max(0, Int(status.st_size) - state.withLock { $0.offset })
    }

    /// Also true if nothing has been read ahead and no fetch is under way: only trying would show.
    func isReady() -> Bool { state.withLock { !$0.isFetching || $0.hasResult } }

    /// A loop's thread reads what was read ahead, and not the file.
    func isReadyOnLoop() -> Bool { state.withLock { $0.hasResult } }

    // MARK: Reading

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        while true {
            let lookup = state.withLock { state in
                let lookup = state.take(into: &buffer)
                if case .nothing = lookup { beginFetching(&state) }
                return lookup
            }
            switch lookup {
            case .transfer(let transfer): return transfer
            case .fault(let error): throw error
            case .nothing(let position): return try readHere(into: &buffer, at: position)
            case .underway(let position):
                // The parent's fetch never ends in a child of fork(2).
                guard process.isCurrent else { return try readHere(into: &buffer, at: position) }
                fetch.wait()
            }
        }
    }

    private func readHere(
        into buffer: inout MutableRawSpan, at position: Int
    ) throws(Errno) -> Transfer {
        var count = 0
        defer {
            endFetching { state in
                state.position += count
                state.unclaimed? += count
            }
        }
        count = try readFile(&buffer, at: position)
        return Transfer(count: count, isAtEnd: count == 0)
    }

    private func readFile(_ buffer: inout MutableRawSpan, at position: Int) throws(Errno) -> Int {
        try shared.use { (number) throws(Errno) in
            isSeekable
                ? try SystemCall.read(number, at: position, into: &buffer)
                : try SystemCall.read(number, into: &buffer)
        }
    }

    /// The bytes are the next ones of what was read ahead.
    func putBack(_ bytes: [UInt8]) -> Bool {
        state.withLock { state in
            if state.chunks.isEmpty {
                state.chunks.append(ByteQueue(bytes))
            } else {
                state.chunks[0].prepend(bytes)
            }
        }
        return true
    }

    // MARK: Reading ahead

    func prepare() -> Availability {
        let (isWanted, hasResult) = state.withLock { state in
            let isWanted =
                !state.isFetching && state.chunks.count < Self.mostChunks && !state.isAtEnd
                && state.fault == nil
            if isWanted { beginFetching(&state) }
            return (isWanted, state.hasResult)
        }
        if isWanted { DispatchWorkers.run { [self] in fetchChunk() } }
        return hasResult ? .ready : .waiting
    }

    private func fetchChunk() {
        var (chunk, position): (ByteQueue?, Int) = state.withLock {
            ($0.spare.take() ?? ByteQueue(), $0.position)
        }
        var fault: Errno?
        let count = chunk!.append(upTo: Self.chunkSize) { bytes in
            do throws(Errno) { return try readFile(&bytes, at: position) } catch {
                fault = error
                return 0
            }
        }
        endFetching { state in
            state.fault = fault
            state.isAtEnd = count == 0 && fault == nil
            if count > 0 { state.chunks.append(chunk.take()!) }
            state.position += count
        }
        let engine = state.withLock { $0.engine }
        engine?.refresh()
    }

    /// Claims the file: one thread at a time reads from it.
    private func beginFetching(_ state: inout State) {
        state.isFetching = true
        fetch.enter()
    }

    /// Ends the claim and stores the result in one step, so that no thread sees one without the other.
    private func endFetching(_ change: (inout State) -> Void) {
        state.withLock { state in
            change(&state)
            state.isFetching = false
        }
        fetch.leave()
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? {
        key == .fileCurrentOffsetKey && isSeekable ? state.withLock { $0.offset } : nil
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        guard key == .fileCurrentOffsetKey, isSeekable, let offset = nonNegativeInteger(value) else {
            return false
        }
        while !state.withLock({ $0.move(to: offset) }) {
            // The parent's fetch never ends in a child of fork(2).
            guard process.isCurrent else { return false }
            fetch.wait()
        }
        return true
    }
}

extension ReadAheadInput {
    /// The bytes that have been read ahead, and the position in the file.
    struct State {
        /// Refreshed after each fetch; nil unless the stream is open.
        var engine: StreamEngine?
        var chunks: [ByteQueue] = []
        /// An empty chunk whose memory the next fetch uses.
        var spare: ByteQueue?
        /// Where the next chunk begins in the file.
        var position = 0
        /// How many bytes have been read and not claimed; nil if reading claims them.
        var unclaimed: Int?
        var isFetching = false
        var isAtEnd = false
        var fault: Errno?

        init(position: Int = 0) { self.position = position }

        /// The offset of the next byte that the client reads.
        var offset: Int { position - chunks.reduce(0) { $0 + $1.count } - (unclaimed ?? 0) }

        /// Whether a read would return without reading the file.
        var hasResult: Bool { !chunks.isEmpty || isAtEnd || fault != nil }
    }

    /// The result of looking for bytes that were read ahead.
    enum Lookup {
        case transfer(Transfer)
        case fault(Errno)
        /// There are none, and no fetch is under way. The next one begins at `position`.
        case nothing(position: Int)
        case underway(position: Int)
    }
}

extension ReadAheadInput.State {
    /// Copies bytes that were read ahead. They come before an error or the end.
    mutating func take(into buffer: inout MutableRawSpan) -> ReadAheadInput.Lookup {
        guard !chunks.isEmpty else {
            if let fault { return .fault(fault) }
            if isAtEnd { return .transfer(Transfer(count: 0, isAtEnd: true)) }
            return isFetching ? .underway(position: position) : .nothing(position: position)
        }
        let count = chunks[0].take(into: &buffer)
        unclaimed? += count
        if chunks[0].count == 0 { spare = chunks.removeFirst() }
        return .transfer(Transfer(count: count))
    }

    /// Continues at another offset, which clears an end and an error. Returns false while a fetch is under
    /// way.
    mutating func move(to offset: Int) -> Bool {
        guard !isFetching else { return false }
        chunks = []
        (position, isAtEnd, fault) = (offset, false, nil)
        unclaimed = unclaimed.map { _ in 0 }
        return true
    }
}
