import CReactorLinux
import Dispatch
import Glibc
import Synchronization
import SystemPackage

/// A file that is written on a Dispatch queue, behind a loop that has something else to do: a bounded number
/// of bytes.
///
/// Without a loop it is written where it is asked to be, so that a full disk is an error of the write itself.
final class WriteBehindOutput: OutputBackend {
    /// The most bytes that are taken and not yet written.
    static let mostBytes = 262_144

    private struct State {
        /// Who is told of room, and of faults; nil unless open.
        var engine: StreamEngine?
        var waiting: [UInt8] = []
        var spare: [UInt8] = []
        /// How many bytes the writer has in hand.
        var inHand = 0
        var isWriting = false
        var fault: Errno?
        /// Whether no more bytes are accepted: those that were are written before the file is closed.
        var isClosed = false
        /// Once closed, where writing has stopped.
        var lastOffset: Int?

        var room: Int { WriteBehindOutput.mostBytes - waiting.count - inHand }
    }

    private let holder: DescriptorHolder
    private let state = Mutex(State())
    private let writer = DispatchGroup()

    init(_ holder: DescriptorHolder) { self.holder = holder }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        state.withLock { $0.engine = engine }
        return self
    }

    func close() throws(Errno) {
        state.withLock { $0.isClosed = true }
        let offset = offset
        holder.close()
        state.withLock { $0.lastOffset = offset ?? $0.lastOffset }
        let (fault, dropped) = state.withLock { ($0.fault, $0.engine.take()) }
        withExtendedLifetime(dropped) {}
        if let fault { throw fault }
    }

    func isReady() -> Bool { state.withLock { $0.room > 0 || $0.fault != nil } }

    /// What was accepted and could not be written is a fault of the stream, whether or not more is written.
    func prepare() -> Availability {
        state.withLock { state in
            if let fault = state.fault { return .failed(fault) }
            return state.room > 0 ? .ready : .waiting
        }
    }

    // MARK: Writing

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        guard isScheduled else {
            writer.wait()
            if let fault = state.withLock({ $0.fault }) { throw fault }
            return Transfer(count: try unsafe writeFile(bytes))
        }
        while true {
            if let transfer = try unsafe accept(bytes) { return transfer }
            writer.wait()
        }
    }

    /// Accepts as many bytes as there is room for; nil if there is none. Throws `canceled` once the stream is closed.
    private func accept(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Transfer? {
        let result = state.withLock { state -> Result<(count: Int, isFirst: Bool), Errno>? in
            if let fault = state.fault { return .failure(fault) }
            if state.isClosed { return .failure(.canceled) }
            guard state.room > 0 else { return nil }
            let count = min(bytes.count, state.room)
            unsafe state.waiting.append(contentsOf: bytes.prefix(count))
            defer { state.isWriting = true }
            if !state.isWriting { writer.enter() }
            return .success((count, !state.isWriting))
        }
        guard let (count, isFirst) = try result?.get() else { return nil }
        if isFirst {
            PendingOutput.begin()
            DispatchWorkers.run { [self] in drain() }
        }
        return Transfer(count: count)
    }

    /// Writes until nothing is waiting, or the file fails.
    private func drain() {
        while let batch = nextBatch() {
            let result = unsafe batch.withUnsafeBytes { bytes in
                Result { () throws(Errno) in try unsafe writeAll(bytes) }
            }
            let engine = state.withLock { state in
                state.spare = batch
                state.inHand = 0
                if case .failure(let fault) = result { state.fault = fault }
                return state.engine
            }
            engine?.refresh()
        }
        writer.leave()
        PendingOutput.end()
    }

    func flush(until deadline: Deadline) throws(Errno) {
        let time = DispatchTime(uptimeNanoseconds: UInt64(max(deadline.uptimeNanoseconds, 0)))
        let isDone = writer.wait(timeout: deadline == .distantFuture ? .distantFuture : time) == .success
        if let fault = state.withLock({ $0.fault }) { throw fault }
        guard isDone else { throw .timedOut }
    }

    private func nextBatch() -> [UInt8]? {
        state.withLock { state in
            guard !state.waiting.isEmpty, state.fault == nil else {
                state.isWriting = false
                state.waiting = []
                return nil
            }
            var batch = state.spare
            state.spare = []
            batch.removeAll(keepingCapacity: true)
            swap(&batch, &state.waiting)
            state.inHand = batch.count
            return batch
        }
    }

    private func writeAll(_ bytes: UnsafeRawBufferPointer) throws(Errno) {
        var written = 0
        while written < bytes.count {
            written += try unsafe writeFile(UnsafeRawBufferPointer(rebasing: bytes[written...]))
        }
    }

    private func writeFile(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int {
        try holder.use { (number) throws(Errno) in
            try SystemCall.make { unsafe reactor_write(number, bytes.baseAddress, bytes.count) }
        }
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? {
        key == .fileCurrentOffsetKey ? offset ?? state.withLock { $0.lastOffset } : nil
    }

    /// Where the next byte is written; nil once closed.
    private var offset: Int? {
        writer.wait()
        return try? holder.seek(to: 0, from: SEEK_CUR)
    }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        guard key == .fileCurrentOffsetKey, let offset = nonNegativeInteger(value),
            holder.isSeekable(forWriting: true)
        else { return false }
        writer.wait()
        return (try? holder.seek(to: offset, from: SEEK_SET)) == offset
    }
}
