import Dispatch
import Glibc
import Synchronization
import SystemPackage

/// A file that is read ahead on a Dispatch queue while a loop is busy with what it has: two chunks, never
/// more.
///
/// Without a loop it is read where it is asked to be.
final class ReadAheadInput: InputBackend {
    /// As much as one read moves without the copy falling out of a core's own cache.
    static let chunkSize = 65_536
    /// One for the delegate to take from, one to come.
    static let mostChunks = 2

    private let holder: DescriptorHolder
    private let isSeekable: Bool
    private let state: Mutex<State>
    private let fetch = DispatchGroup()

    init(_ holder: DescriptorHolder, isSeekable: Bool) throws(Errno) {
        self.holder = holder
        self.isSeekable = isSeekable
        guard isSeekable else {
            state = Mutex(State())
            return
        }
        state = Mutex(State(position: try holder.seek(to: 0, from: SEEK_CUR)))
    }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        state.withLock { $0.engine = engine }
        return self
    }

    /// Gives back what was read ahead: whoever shares the descriptor goes on where the client stopped.
    func close() throws(Errno) {
        let (offset, dropped) = state.withLock { ($0.offset, $0.engine.take()) }
        withExtendedLifetime(dropped) {}
        if isSeekable { _ = try? holder.seek(to: offset, from: SEEK_SET) }
        holder.close()
    }

    /// From now on bytes that are read count as taken only when they are claimed: the offset that ``close()`` leaves is
    /// behind the last that were.
    func beginClaiming() { state.withLock { $0.unclaimed = 0 } }

    /// Counts `count` bytes that have been read as taken.
    func claim(_ count: Int) { state.withLock { $0.unclaimed? -= count } }

    /// How many bytes there are still to read, as far as is known.
    var expectedByteCount: Int? {
        var status = stat()
        let code = try? holder.use { (number) throws(Errno) in
            try SystemCall.make { unsafe fstat(number, &status) }
        }
        guard isSeekable, code != nil else { return nil }
        return max(0, Int(status.st_size) - state.withLock { $0.offset })
    }

    /// When nothing has been read ahead, and nothing is on its way, only trying would tell.
    func isReady() -> Bool { state.withLock { !$0.isFetching || $0.hasNews } }

    // MARK: Reading

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        while true {
            let finding = state.withLock { state in
                let finding = unsafe state.take(into: buffer)
                if case .nothing = finding { beginFetching(&state) }
                return finding
            }
            switch finding {
            case .transfer(let transfer): return transfer
            case .fault(let error): throw error
            case .nothing(let position): return try unsafe readHere(into: buffer, at: position)
            case .onItsWay: fetch.wait()
            }
        }
    }

    private func readHere(
        into buffer: UnsafeMutableRawBufferPointer, at position: Int
    ) throws(Errno) -> Transfer {
        var count = 0
        defer {
            endFetching { state in
                state.position += count
                state.unclaimed? += count
            }
        }
        count = try unsafe readFile(buffer, at: position)
        return Transfer(count: count, isAtEnd: count == 0)
    }

    private func readFile(_ buffer: UnsafeMutableRawBufferPointer, at position: Int) throws(Errno) -> Int {
        try holder.use { (number) throws(Errno) in
            try SystemCall.make {
                unsafe isSeekable
                    ? pread(number, buffer.baseAddress, buffer.count, position)
                    : Glibc.read(number, buffer.baseAddress, buffer.count)
            }
        }
    }

    // MARK: Reading ahead

    func prepare() -> Availability {
        let (isWanted, hasNews) = state.withLock { state in
            let isWanted =
                !state.isFetching && state.chunks.count < Self.mostChunks && !state.isAtEnd
                && state.fault == nil
            if isWanted { beginFetching(&state) }
            return (isWanted, state.hasNews)
        }
        if isWanted { DispatchWorkers.run { [self] in fetchChunk() } }
        return hasNews ? .ready : .waiting
    }

    private func fetchChunk() {
        let (spare, position) = state.withLock { ($0.spare.popLast(), $0.position) }
        var chunk = spare ?? []
        if chunk.count < Self.chunkSize { chunk = [UInt8](repeating: 0, count: Self.chunkSize) }
        let result = unsafe chunk.withUnsafeMutableBytes { bytes in
            Result { () throws(Errno) in try unsafe readFile(bytes, at: position) }
        }
        endFetching { state in
            switch result {
            case .failure(let error): state.fault = error
            case .success(0): state.isAtEnd = true
            case .success(let count):
                if count < chunk.count { chunk.removeLast(chunk.count - count) }
                state.chunks.append(chunk)
                state.position += count
            }
        }
        let engine = state.withLock { $0.engine }
        engine?.refresh()
    }

    /// Claims the file: one at a time reads from it.
    private func beginFetching(_ state: inout State) {
        state.isFetching = true
        fetch.enter()
    }

    /// Gives the file free, and in the same breath leaves what was read: nobody sees the one without the other.
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
        while !state.withLock({ $0.move(to: offset) }) { fetch.wait() }
        return true
    }
}
