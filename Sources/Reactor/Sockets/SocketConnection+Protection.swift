import SystemPackage

extension SocketConnection {
    /// The transport of the secure session.
    var wire: SocketWire {
        SocketWire(connection: self, buffer: bufferSlot.buffer ?? state.withLock { $0.details?.closedBuffer })
    }

    /// Protects a connection that is open, from the next byte on. Bytes that were written before are sent
    /// before the handshake.
    func beginProtecting() {
        let (input, isConnected) = state.withLock { ($0.engines.input, $0.details?.isUpgrade == true) }
        let unused = input?.takePutBackBytes() ?? []
        notifyBoth { $0.machine.changeReadinessSource($0.readinessSource) }
        guard isConnected, let channel else { return }
        if !unused.isEmpty {
            guard channel.isServer else {
                finishOpening(channel.unprotectedBytes(from: subject))
                return
            }
            channel.setEarlyBytes(unused)
        }
        state.withLock { $0.hasEnded || $0.details?.opening != nil ? nil : makeOpening(&$0) }?.start()
    }

    /// Makes what the connection waits for next.
    func makeOpening(_ state: inout State) -> SocketOpening {
        let details = state.detailsToChange()
        let opening = SocketOpening(
            of: self, isUpgrade: details.isUpgrade, timeout: details.options.connectTimeout)
        details.opening = opening
        return opening
    }

    /// Whether there is no socket yet. An existing one has none either once it is closed.
    var needsSocket: Bool { shared.number < 0 && !origin.isDescriptor }

    /// Takes the socket that an opening has connected; false if it is of no use any more.
    func adopt(_ connected: ConnectedSocket) -> Bool {
        state.withLock { state in
            guard !state.hasEnded, state.failure == nil, let number = connected.socket.release() else {
                return false
            }
            shared.adopt(number)
            let details = state.detailsToChange()
            details.serviceType?.apply(to: FileDescriptor(rawValue: number))
            details.peer = connected.peer
            return true
        }
    }

    /// Makes the buffer for what a handshake sends; false if no half waits for it.
    func prepareHandshake() -> Bool {
        state.withLock { state in
            guard !state.hasEnded, let engine = state.engines.output ?? state.engines.input else {
                state.details?.opening = nil
                return false
            }
            bufferSlot.requireBuffer(for: engine) { bufferClient }
            return true
        }
    }

    /// The opening has succeeded or failed.
    ///
    /// - Parameter deregister: Ends the opening's registration of the socket, before the halves' loops make theirs: these would
    ///   wait for it.
    /// - Returns: False, and nothing has happened, if there is another handshake to make, because the connection was protected
    ///   meanwhile.
    @discardableResult
    func finishOpening(_ error: (any Error)?, deregister: () -> Void = {}) -> Bool {
        let (isLast, isWanted) = state.withLock { state in
            if error == nil, channel?.isEstablished == false { return (false, false) }
            state.details?.opening = nil
            guard !state.hasEnded, state.failure == nil else { return (true, false) }
            state.connecting = error.map { .failed($0) } ?? .ready
            return (true, true)
        }
        if isLast { deregister() }
        if isLast, let error { fail(errno(for: error), on: nil) }
        guard isLast, isWanted, error == nil else { return isLast }
        wakeWaiters()
        startTimeouts()
        if channel?.isEnding == true { try? shutDownSocket() }
        if !releaseEvents() { notifyBoth { $0.machine.changeReadinessSource($0.readinessSource) } }
        return true
    }

    /// Sends what the session keeps, once the rest of the peer's message has come.
    func sendHeldLater() throws(Errno) {
        try ResidentThread.streams.runLoop().perform { [weak self] in
            // Not a source: a message of which only a part has come is rare, and ends with the next packet.
            Timer.scheduled(every: WriteBufferSender.retryInterval) { timer in
                guard let self, self.isStillHolding() else { return timer.invalidate() }
            }
        }
    }

    /// Sends what the session keeps, if it may. Returns whether it keeps any, and may send it later.
    private func isStillHolding() -> Bool {
        guard let channel, failure == nil, !state.withLock({ $0.isClosed }) else { return false }
        do throws(Errno) { return try !channel.sendHeld(for: self) } catch {
            fail(error, on: nil)
            return false
        }
    }

    /// Waits until the handshake has succeeded; throws what a read or a write of the half throws if it has
    /// not.
    func waitForHandshake(_ half: Half) throws(Errno) {
        waitUntilOpen(half)
        if let failure { throw failure }
        if state.withLock({ $0.closed[half] }) { throw .canceled }
    }

    /// Shuts the socket down for writing, after the buffered bytes.
    func shutDownSocket() throws(Errno) {
        guard bufferSlot.buffer?.finish(.shutDown) != true else { return }
        try shared.shutDown()
        awaitAcknowledgement()
    }

    /// Returns what a session has returned, or records why it has failed.
    @discardableResult
    func check<Value>(_ result: Result<Value, any Error>) throws(Errno) -> Value {
        switch result {
        case .success(let value): return value
        case .failure(let error): throw errno(for: error)
        }
    }

    /// The error of a system call; that of a session is recorded, and replaces the one that is returned.
    private func errno(for error: any Error) -> Errno {
        if let errno = error as? Errno { return errno }
        state.withLock { state in
            let details = state.detailsToChange()
            if details.failure == nil { details.failure = error }
        }
        return .protocolError
    }
}
