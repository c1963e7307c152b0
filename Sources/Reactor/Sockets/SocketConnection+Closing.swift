import SystemPackage

extension SocketConnection {
    /// The work that remains without the lock after a half was closed.
    struct Closing: ~Copyable {
        /// Whether the socket is to be closed.
        var hasEnded = false
        var opening: SocketOpening?
        var wait: DescriptorWait?
        /// The output's write buffer, once the output is closed.
        var buffer: WriteBuffer?
        var limits: WriteBuffer.Limits
        /// Nil for the default.
        var closeTimeout: Duration?
        /// The output's engine, once both halves are closed.
        var output: StreamEngine?
    }

    /// Closes one half. The socket is closed, and the peer finds out, with the second one.
    func close(_ half: Half) {
        let closing = state.withLock { $0.close(half, bufferSlot) }
        closing.opening?.cancel()
        closing.wait?.end()
        wakeWaiters()
        guard closing.hasEnded else {
            releaseEvents()
            _ = closing.buffer?.finish(.stop, within: closing.limits)
            return
        }
        stopTimeouts()
        closeSocket(closing)
    }

    /// Closes one half in a child of fork(2), and the descriptor with the second one.
    func closeDescriptor(_ half: Half) {
        let isClosed = state.withLockIfAvailable { state in
            state.closed[half] = true
            return state.isClosed
        }
        if isClosed ?? true { shared.close() }
    }

    /// Closes the socket, or leaves that to the write buffer or the graceful close that still has bytes to
    /// send.
    private func closeSocket(_ closing: borrowing Closing) {
        let failure = failure
        let isOwned = shared.closesWhenDone && failure == nil
        defer { shared.close() }
        if let failure, shared.closesWhenDone, shared.unacknowledgedByteCount > 0 {
            // The output may have been closed before it was notified of the fault.
            closing.output?.noteLostBytes(failure)
        }
        if failure == nil, let channel, channel.isEstablished {
            do throws(Errno) {
                try channel.end(over: SocketWire(connection: self, buffer: closing.buffer))
            } catch {
                closing.output?.noteLostBytes(error)
            }
        }
        let ending: WriteBuffer.Ending = isOwned ? .close : .stop
        // A descriptor that is not closed here is not reset either.
        let limits = isOwned && closing.buffer?.isEmpty == false ? self.limits(of: closing) : closing.limits
        if let buffer = closing.buffer, buffer.finish(ending, within: limits) {
            if isOwned { buffer.keepOpen(shared) }
            return noteClosing(by: buffer.ownDescriptor)
        }
        guard isOwned, shutsDown, GracefulClose.isNeeded(for: shared, isAtEnd: hasReachedEnd) else { return }
        noteClosing(
            by: GracefulClose.begin(for: shared, within: self.limits(of: closing), engine: closing.output))
    }

    private func noteClosing(by descriptor: SharedDescriptor?) {
        state.withLock { $0.detailsToChange().closing = descriptor }
    }

    /// Resets the connection: drops what was not sent, also by what closes the socket in the background.
    ///
    /// - Returns: Whether there was a socket.
    func reset() -> Bool {
        if reset(shared) { return true }
        fail(.connectionAbort, on: nil)
        return state.withLock { $0.details?.closing }.map { reset($0) } ?? false
    }

    private func reset(_ socket: SharedDescriptor) -> Bool {
        let hasReset = try? socket.use { (_) throws(Errno) in
            // First, so that no half finds another reason; and during the use, so that none closes the socket before.
            fail(.connectionAbort, on: nil)
            return socket.reset()
        }
        return hasReset ?? false
    }

    /// Delays process exit until the peer has everything, once the socket was shut down.
    func awaitAcknowledgement() {
        guard shared.unacknowledgedByteCount > 0, let own = shared.duplicate() else { return }
        let (engine, limits) = state.withLock { ($0.engines.output, $0.limits) }
        GracefulClose.awaitAcknowledgement(on: own, within: limits, engine: engine)
    }
}

extension SocketConnection.State {
    /// Closes a half. The output's engine and write buffer stay until the socket is closed too: one is
    /// notified of lost bytes, and the other may still have to send some.
    fileprivate mutating func close(
        _ half: SocketConnection.Half, _ bufferSlot: borrowing WriteBufferSlot
    ) -> SocketConnection.Closing {
        var closing = SocketConnection.Closing(limits: limits)
        passCompleted()
        closed[half] = true
        if half == .input {
            engines.input = nil
        } else if let buffer = bufferSlot.close() {
            detailsToChange().closedBuffer = buffer
            closing.buffer = buffer
        }
        closing.wait = details?.waits[half]
        guard isClosed else { return closing }
        if case .waiting = connecting { connecting = .failed(Errno.canceled) }
        closing.hasEnded = true
        closing.output = engines.output.take()
        if let details {
            closing.opening = details.opening.take()
            closing.closeTimeout = details.options.closeTimeout
            closing.buffer = details.closedBuffer.take() ?? bufferSlot.close()
        }
        return closing
    }
}
