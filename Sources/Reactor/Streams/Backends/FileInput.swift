import Glibc
import Synchronization
import SystemPackage

/// A regular file, or a device that epoll(7) refuses. On a run loop a Dispatch queue reads it ahead, up to
/// two chunks.
///
/// Who reads the file has its ``FileReader``: that queue, a thread that reads the stream off a run loop, the worker of a
/// hand-off or of lines. Other threads wait for it.
final class FileInput: InputBackend {
    /// The largest read whose copy stays in a core's own cache.
    static let chunkSize = 65_536

    private let shared: SharedDescriptor
    private let isSeekable: Bool
    private let state: Mutex<State>
    private let readerReturned = EventCount()
    /// The offset of the next byte that the client reads. Atomic, because a hand-off takes its chunks without the lock.
    private let offset: Atomic<Int>
    private let process = ProcessIdentity.current

    init(_ shared: SharedDescriptor, isSeekable: Bool) throws(Errno) {
        self.shared = shared
        self.isSeekable = isSeekable
        let start = isSeekable ? try shared.seek(to: 0, from: SEEK_CUR) : 0
        offset = Atomic(start)
        state = Mutex(State(position: start))
    }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        state.withLock { $0.engine = engine }
        return self
    }

    /// Sets the offset behind the last byte that the client read, for other users of the descriptor.
    func close() throws(Errno) {
        let dropped = state.withLock { $0.engine.take() }
        withExtendedLifetime(dropped) {}
        if isSeekable { _ = try? shared.seek(to: offset.load(ordering: .relaxed), from: SEEK_SET) }
        shared.close()
    }

    func closeDescriptor() { shared.close() }

    /// How many bytes are left to read, as far as is known.
    var expectedByteCount: Int? {
        guard isSeekable, let status = try? shared.status() else { return nil }
        return max(0, Int(status.st_size) - offset.load(ordering: .relaxed))
    }

    /// Also true if nothing has been read ahead and no thread reads: only trying would show.
    func isReady() -> Bool { state.withLock { $0.ahead.hasResult || $0.reader == nil && !$0.isFetching } }

    /// A loop's thread reads what was read ahead, and not the file.
    func isReadyOnLoop() -> Bool { state.withLock { $0.ahead.hasResult } }

    // MARK: Reading

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        if let transfer = try takeAhead(into: &buffer) { return transfer }
        var reader = takeReader()
        let count = try reader.read(into: &buffer)
        advance(by: count)
        return Transfer(count: count, isAtEnd: count == 0)
    }

    private func takeAhead(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        try state.withLock { (state) throws(Errno) in
            let transfer = try state.ahead.take(into: &buffer, emptying: &state.spare)
            if let transfer { advance(by: transfer.count) }
            return transfer
        }
    }

    /// Reads the bytes at `position`, for the ``FileReader``.
    func readFile(_ buffer: inout MutableRawSpan, at position: Int) throws(Errno) -> Int {
        try shared.use { (number) throws(Errno) in
            isSeekable
                ? try SystemCall.read(number, at: position, into: &buffer)
                : try SystemCall.read(number, into: &buffer)
        }
    }

    /// Counts bytes as read by the client.
    func advance(by count: Int) { offset.add(count, ordering: .relaxed) }

    /// The bytes are the next ones of what was read ahead.
    func putBack(_ bytes: [UInt8]) -> Bool {
        advance(by: -bytes.count)
        state.withLock { $0.ahead.putBack(bytes) }
        return true
    }

    // MARK: The reader

    /// Takes the reader, with what was read ahead; waits while another thread has it.
    func takeReader() -> FileReader {
        let isInherited = !process.isCurrent
        let thread = pthread_self()
        let (position, ahead) = readerReturned.wait {
            state.withLock { state -> (Int, Ahead)? in
                // A thread of the parent never returns it in a child of fork(2).
                guard state.reader == nil || isInherited else {
                    require(state.reader != thread, Self.misuse)
                    return nil
                }
                state.reader = thread
                defer { state.ahead = Ahead() }
                return (state.position, state.ahead)
            }
        }
        return FileReader(self, at: position, after: ahead)
    }

    private static var misuse: String {
        "A processor must neither read the stream that was handed off nor set its offset: it would wait for itself."
    }

    func returnReader(at position: Int, _ ahead: Ahead) {
        state.withLock { state in
            (state.reader, state.position) = (nil, position)
            state.ahead.append(ahead)
        }
        readerReturned.broadcast()
    }

    // MARK: Reading ahead

    func prepare() -> Availability {
        let (isWanted, hasResult) = state.withLock { state in
            let isWanted = !state.isFetching && state.reader == nil && state.ahead.hasRoom
            if isWanted { state.isFetching = true }
            return (isWanted, state.ahead.hasResult)
        }
        if isWanted { DispatchWorkers.run { [self] in fetch() } }
        return hasResult ? .ready : .waiting
    }

    /// Reads a chunk ahead, unless another thread reads: when it has, the engine calls ``prepare()`` again.
    private func fetch() {
        let (start, engine) = state.withLock { state -> ((Int, ByteQueue)?, StreamEngine?) in
            state.isFetching = false
            guard state.reader == nil else { return (nil, nil) }
            state.reader = pthread_self()
            return ((state.position, state.spare.take() ?? ByteQueue()), state.engine)
        }
        guard let (position, chunk) = start else { return }
        var reader = FileReader(self, at: position)
        reader.readAhead(into: chunk)
        _ = consume reader
        engine?.refresh()
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? {
        key == .fileCurrentOffsetKey && isSeekable ? offset.load(ordering: .relaxed) : nil
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        guard key == .fileCurrentOffsetKey, isSeekable, let offset = nonNegativeInteger(value) else {
            return false
        }
        var reader = takeReader()
        reader.seek(to: offset)
        self.offset.store(offset, ordering: .relaxed)
        return true
    }
}

extension FileInput {
    /// The bytes that were read ahead, and the end or the error after them.
    typealias Ahead = BoundedQueue<[ByteQueue], Errno>

    private struct State {
        /// Refreshed after each fetch; nil unless the stream is open.
        var engine: StreamEngine?
        /// Where the file is read next.
        var position: Int
        var ahead = Ahead()
        /// An empty chunk whose memory the next fetch uses.
        var spare: ByteQueue?
        /// The thread that has the reader.
        var reader: pthread_t?
        /// Whether a fetch is about to take the reader.
        var isFetching = false

        init(position: Int) { self.position = position }
    }
}

extension FileInput.Ahead {
    /// One chunk that the delegate reads, and one that is being fetched.
    init() { self.init(limit: 2) }

    /// Copies bytes of the first chunk, or reports the end; nil if there is neither.
    ///
    /// - Parameter spare: Set to the chunk if it is empty then.
    mutating func take(
        into buffer: inout MutableRawSpan, emptying spare: inout ByteQueue?
    ) throws(Errno) -> Transfer? {
        guard isEmpty else {
            let count = contents[0].take(into: &buffer)
            if contents[0].count == 0 { spare = contents.removeFirst() }
            return Transfer(count: count)
        }
        if let producerFailure { throw producerFailure }
        return isOpen ? nil : Transfer(count: 0, isAtEnd: true)
    }

    mutating func putBack(_ bytes: [UInt8]) {
        if isEmpty { put(ByteQueue(bytes)) } else { contents[0].prepend(bytes) }
    }

    mutating func append(_ later: Self) {
        contents += later.contents
        if !later.isOpen { end(later.producerFailure) }
    }
}
