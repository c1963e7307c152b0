import Synchronization
import SystemPackage

extension StreamEngine {
    /// What one read(2) or write(2) moves at most: a longer request, which may be longer than memory, is cut.
    static let mostBytes = 0x7fff_f000

    func read(_ source: any InputBackend, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
        let beginning = beginTransfer(.reading, count: buffer.count)
        if case .refused(let answer) = beginning { return answer }
        do throws(Errno) {
            return finishTransfer(try unsafe source.read(into: buffer))
        } catch {
            return failTransfer(error)
        }
    }

    func write(_ sink: any OutputBackend, _ bytes: UnsafeRawBufferPointer) -> Int {
        switch beginTransfer(.writing, count: bytes.count) {
        case .refused(let answer): return answer
        case .begun(let isScheduled):
            do throws(Errno) {
                return finishTransfer(try unsafe sink.write(bytes, isScheduled: isScheduled))
            } catch {
                return failTransfer(error)
            }
        }
    }

    /// The bytes of a stream of bytes in memory that are left; nil if it has none or is not open.
    func takeBuffer(_ source: any InputBackend) -> UnsafeRawBufferPointer? {
        guard isOpen, let bytes = unsafe source.takeBuffer() else { return nil }
        finishTransfer(Transfer(count: bytes.count, isAtEnd: true))
        return unsafe bytes
    }

    func flush(_ sink: any OutputBackend, until deadline: Deadline) throws(Errno) {
        if let error = error as? Errno { throw error }
        guard isOpen || status == .atEnd else { throw .badFileDescriptor }
        try sink.flush(until: deadline)
    }

    func shutDown(_ sink: any OutputBackend) throws(Errno) {
        guard isOpen else { throw .socketNotConnected }
        do throws(Errno) {
            try sink.shutDown()
            state.withLock { $0.machine.finishWriting() }
        } catch {
            if error != .notSocket { state.withLock { $0.machine.failUnlessReleased(error) } }
            refresh()
            throw error
        }
    }

    /// How a read or a write begins.
    private enum Beginning {
        case begun(isScheduled: Bool)
        /// It may not be made, and returns this.
        case refused(Int)
    }

    private func beginTransfer(_ status: Stream.Status, count: Int) -> Beginning {
        let beginning = state.withLock { state -> Beginning? in
            guard state.machine.isOpen else { return state.machine.status == .atEnd ? .refused(0) : nil }
            guard count > 0 else { return .refused(0) }
            state.machine.begin(status, answering: event)
            if !state.isTelling || state.queue != nil { state.hasMovedOutside = true }
            return .begun(isScheduled: !state.homes.isEmpty)
        }
        return beginning ?? beginUnopened(status, count: count)
    }

    /// As ``beginTransfer(_:count:)``, once the stream is open.
    @inline(never)
    private func beginUnopened(_ status: Stream.Status, count: Int) -> Beginning {
        guard self.status == .opening else { return .refused(-1) }
        backend.waitUntilOpen()
        return advanceOpening() ? .refused(-1) : beginTransfer(status, count: count)
    }

    @discardableResult
    @inline(always)
    private func finishTransfer(_ transfer: Transfer) -> Int {
        run(state.withLock { $0.finish(transfer, event) })
        return transfer.count
    }

    private func failTransfer(_ error: Errno) -> Int {
        // Closed from another thread under the call: that is no fault of the stream's.
        fail(error)
        refresh()
        return -1
    }
}

extension StreamEngine.State {
    @inline(always)
    fileprivate mutating func finish(_ transfer: Transfer, _ event: Stream.Event) -> StreamEngine.Errand {
        machine.finish(answering: event)
        room = transfer.room
        if transfer.isAtEnd { machine.reachEnd() }
        if readying == .kernelWhenFull, room == .assumed { machine.raise(event) }
        return errand(event)
    }
}
