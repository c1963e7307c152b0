import Synchronization
import SystemPackage

extension StreamEngine {
    /// What one read(2) or write(2) moves at most: a longer request, which may be longer than memory, is cut.
    static let mostBytes = 0x7fff_f000

    func read(_ source: any InputBackend, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
        if let refusal = beginTransfer(.reading, count: buffer.count) { return refusal }
        let buffer = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer.prefix(Self.mostBytes))
        do throws(Errno) {
            return finishTransfer(try unsafe source.read(into: buffer))
        } catch {
            return failTransfer(error)
        }
    }

    func write(_ sink: any OutputBackend, _ bytes: UnsafeRawBufferPointer) -> Int {
        if let refusal = beginTransfer(.writing, count: bytes.count) { return refusal }
        let bytes = unsafe UnsafeRawBufferPointer(rebasing: bytes.prefix(Self.mostBytes))
        do throws(Errno) {
            return finishTransfer(try unsafe sink.write(bytes, isScheduled: isScheduled))
        } catch {
            return failTransfer(error)
        }
    }

    /// The bytes of a stream of bytes in memory that are left; nil if it has none or is not open.
    func takeBuffer(_ source: any InputBackend) -> UnsafeRawBufferPointer? {
        guard isOpen, let bytes = unsafe source.takeBuffer() else { return nil }
        finishTransfer(Transfer(count: bytes.count, isAtEnd: true))
        return unsafe bytes
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

    /// Begins a read or a write; what it has to return instead, if it may not be made.
    private func beginTransfer(_ status: Stream.Status, count: Int) -> Int? {
        let answer = state.withLock { state -> (refusal: Int?, isOpening: Bool) in
            if state.machine.status == .atEnd { return (0, false) }
            guard state.machine.isOpen else { return (-1, state.machine.status == .opening) }
            guard count > 0 else { return (0, false) }
            state.machine.begin(status, answering: event)
            if !state.isTelling || state.queue != nil { state.hasMovedOutside = true }
            return (nil, false)
        }
        guard answer.isOpening else { return answer.refusal }
        backend.waitUntilOpen()
        return advanceOpening() ? -1 : beginTransfer(status, count: count)
    }

    @discardableResult
    private func finishTransfer(_ transfer: Transfer) -> Int {
        let errand = state.withLock { state -> Errand in
            state.machine.finish(answering: event)
            state.isBlocked = transfer.isBlocked
            if transfer.isBlocked { state.isDraining = true }
            if transfer.isAtEnd { state.machine.reachEnd() }
            if state.readying == .kernelWhenBlocked, !transfer.isBlocked { state.machine.raise(event) }
            return state.errand(event)
        }
        run(errand)
        return transfer.count
    }

    private func failTransfer(_ error: Errno) -> Int {
        // Closed from another thread under the call: that is no fault of the stream's.
        fail(error)
        refresh()
        return -1
    }
}
