import Dispatch
import Glibc
import Synchronization
import SystemPackage

/// A file that is written on a Dispatch queue, so that a slow disk does not block the loop. The number of
/// bytes that wait to be written is bounded.
///
/// A write on a loop never waits; closing the stream, and asking for its offset, wait for the accepted bytes.
/// Without a loop the calling thread writes, so that a full disk is an error of the write itself.
final class WriteBehindOutput: OutputBackend {
    /// The limit of accepted bytes that are not written yet: enough for a disk to be busy while the loop
    /// produces more.
    static let byteLimit = 262_144

    private struct State {
        /// Refreshed when there is room, and after faults; nil unless open.
        var engine: StreamEngine?
        /// Closing the stream ends it, and a fault of the file cancels it.
        var waiting: BoundedQueue<[UInt8], Errno>
        var spare: [UInt8] = []
        /// The number of bytes that the writer is writing.
        var writingCount = 0
        /// Called when the bytes before them are written, or the file has failed.
        var flushes = FlushCallbacks()
        var isWriting = false
        /// The final offset, once closed.
        var lastOffset: Int?

        /// The number of bytes that are accepted and not written.
        var count: Int { waiting.contents.count + writingCount }
        var room: Int { waiting.limit - count }
        var failure: Errno? { waiting.consumerFailure }
    }

    private let shared: SharedDescriptor
    private let state: Mutex<State>
    private let writer = DispatchGroup()
    private let process = ProcessIdentity.current

    /// Whether this is a child of the process that opened the stream. Neither the writer nor its bytes are the
    /// child's: it does not wait for them, nor takes the lock, which the writer may have held at fork(2).
    private var isInherited: Bool { !process.isCurrent }

    init(_ shared: SharedDescriptor, limit: Int = byteLimit) {
        self.shared = shared
        state = Mutex(State(waiting: BoundedQueue(limit: limit)))
    }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        state.withLock { $0.engine = engine }
        return self
    }

    func close() throws(Errno) {
        state.withLock { $0.waiting.end() }
        let offset = offset
        shared.close()
        state.withLock { $0.lastOffset = offset ?? $0.lastOffset }
        let (failure, dropped) = state.withLock { ($0.failure, $0.engine.take()) }
        withExtendedLifetime(dropped) {}
        if let failure { throw failure }
    }

    func closeDescriptor() { shared.close() }

    func isReady() -> Bool { isInherited || state.withLock { $0.room > 0 || $0.failure != nil } }

    /// Accepted bytes that could not be written are a fault of the stream, also if nothing more is written.
    var failure: Errno? { isInherited ? nil : state.withLock { $0.failure } }

    func prepare() -> Availability {
        if isInherited { return .ready }
        return state.withLock { state in
            if let failure = state.failure { return .failed(failure) }
            return state.room > 0 ? .ready : .waiting
        }
    }

    // MARK: Writing

    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        if isInherited { return Transfer(count: try writeFile(bytes)) }
        guard isScheduled else {
            writer.wait()
            if let failure = state.withLock({ $0.failure }) { throw failure }
            return Transfer(count: try writeFile(bytes))
        }
        return try accept(bytes)
    }

    /// Accepts as many bytes as there is room for. Throws `canceled` once the stream is closed.
    private func accept(_ bytes: RawSpan) throws(Errno) -> Transfer {
        let (count, isFirst) = try state.withLock { (state) throws(Errno) -> (Int, Bool) in
            if let failure = state.failure { throw failure }
            if !state.waiting.isOpen { throw .canceled }
            let count = min(bytes.byteCount, state.room)
            guard count > 0 else { return (0, false) }
            state.waiting.contents.append(bytes.extracting(first: count))
            defer { state.isWriting = true }
            if !state.isWriting { writer.enter() }
            return (count, !state.isWriting)
        }
        if isFirst {
            PendingOutput.begin()
            DispatchWorkers.run { [self] in drain() }
        }
        return Transfer(count: count)
    }

    /// Writes until no bytes wait, or the file fails.
    private func drain() {
        while let batch = nextBatch() {
            let result = batch.withBytes { bytes in
                Result { () throws(Errno) in try writeAll(bytes) }
            }
            let (engine, due) = state.withLock { state in
                state.spare = batch
                state.writingCount = 0
                state.flushes.take(batch.count)
                if case .failure(let failure) = result { state.waiting.cancel(failure) }
                return (state.engine, state.flushes.removeDue(all: state.failure != nil))
            }
            engine?.refresh()
            // Not here: a callback may release the stream, which then waits for this writer.
            if !due.isEmpty { DispatchWorkers.run { for callback in due { callback() } } }
        }
        writer.leave()
        PendingOutput.end()
    }

    func flush(until deadline: Deadline) throws(Errno) {
        guard !isInherited else { return }
        let changed = EventCount()
        let callback = FlushCallback { changed.broadcast() }
        defer { callback.cancel() }
        whenFlushed(callback)
        let isDone = changed.wait(until: deadline) { callback.isWaiting ? nil : () } != nil
        if let failure = state.withLock({ $0.failure }) { throw failure }
        guard isDone else { throw .timedOut }
    }

    var isFlushed: Bool { isInherited || state.withLock { $0.count == 0 } }

    func whenFlushed(_ callback: FlushCallback) {
        if isInherited { return callback() }
        let isDone = state.withLock { state in
            if state.count == 0 || state.failure != nil { return true }
            state.flushes.add(callback, at: state.flushes.takenCount + state.count)
            return false
        }
        if isDone { callback() }
    }

    private func nextBatch() -> [UInt8]? {
        state.withLock { state in
            guard !state.waiting.isEmpty else {
                state.isWriting = false
                return nil
            }
            var batch = state.spare
            state.spare = []
            batch.removeAll(keepingCapacity: true)
            swap(&batch, &state.waiting.contents)
            state.writingCount = batch.count
            return batch
        }
    }

    private func writeAll(_ bytes: RawSpan) throws(Errno) {
        var written = 0
        while written < bytes.byteCount {
            written += try writeFile(bytes.extracting(droppingFirst: written))
        }
    }

    private func writeFile(_ bytes: RawSpan) throws(Errno) -> Int {
        try shared.use { (number) throws(Errno) in try SystemCall.write(bytes, to: number) }
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? {
        guard key == .fileCurrentOffsetKey else { return nil }
        return offset ?? (isInherited ? nil : state.withLock { $0.lastOffset })
    }

    /// The offset of the next write; nil once closed.
    private var offset: Int? {
        if !isInherited { writer.wait() }
        return try? shared.seek(to: 0, from: SEEK_CUR)
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        guard key == .fileCurrentOffsetKey, let offset = nonNegativeInteger(value),
            shared.isSeekable(forWriting: true)
        else { return false }
        if !isInherited { writer.wait() }
        return (try? shared.seek(to: offset, from: SEEK_SET)) == offset
    }
}
