import SystemPackage

/// What makes a connection usable: connecting, then the handshakes with a proxy and with the peer.
protocol SocketOpening: AnyObject, Sendable {
    /// Begins, on the streams thread, whose loop is `loop`; does nothing once it is cancelled.
    func begin(on loop: RunLoop)

    func fail(_ error: any Error)

    /// Ends it. No step that has not begun is made.
    func cancel()
}

extension SocketOpening {
    func start() {
        do throws(Errno) {
            let loop = try ResidentThread.streams.runLoop()
            loop.perform { [self] in begin(on: loop) }
        } catch {
            fail(error)
        }
    }
}

/// The handshakes of a connection, on the streams thread: with its proxy, and of its channel. The streams'
/// loops neither wait for them nor compute for them.
final class SocketHandshake: SocketOpening {
    private struct State {
        var isCancelled = false
        var steps: LoopOwned<HandshakeSteps>?
    }

    private let connection: SocketConnection
    private let deadline: Deadline
    /// Whether the connection was usable before, unprotected.
    private let isUpgrade: Bool
    private let state = Mutex(State())

    init(_ connection: SocketConnection, until deadline: Deadline, isUpgrade: Bool) {
        self.connection = connection
        (self.deadline, self.isUpgrade) = (deadline, isUpgrade)
    }

    func cancel() { takeSteps()?.perform { $0.end() } }

    private func takeSteps() -> LoopOwned<HandshakeSteps>? {
        state.withLock { state in
            state.isCancelled = true
            return state.steps.take()
        }
    }

    func begin(on loop: RunLoop) {
        let steps: HandshakeSteps
        do {
            // A connection that was usable is the proxy's tunnel already.
            let negotiation = try isUpgrade ? nil : connection.makeNegotiation()
            steps = HandshakeSteps(self, negotiation, until: deadline)
        } catch {
            return fail(error)
        }
        let owned = LoopOwned(steps, on: loop)
        let isCancelled = state.withLock { state in
            if !state.isCancelled { state.steps = owned }
            return state.isCancelled
        }
        if isCancelled { return steps.end() }
        guard isUpgrade, let buffer = connection.bufferSlot.buffer else { return begin(steps) }
        // What was written before the connection was protected is sent first.
        buffer.whenFlushed(FlushCallback { [self] in owned.perform { self.begin($0) } })
    }

    private func begin(_ steps: HandshakeSteps) {
        // Bytes before the first answer of a server were not written by the peer that is about to prove who
        // it is.
        if isUpgrade, let channel = connection.channel, !channel.isServer, connection.shared.hasUnreadBytes {
            end(channel.unprotectedBytes(from: connection.subject))
        } else {
            steps.begin(on: connection.shared)
        }
    }

    /// Makes what steps the received bytes allow.
    fileprivate func proceed(_ negotiation: inout ProxyNegotiation?) {
        do {
            guard try negotiation?.proceed(over: connection.wire) ?? true else { return }
            negotiation = nil
            while try connection.channel?.continueHandshake(of: connection) ?? true { if end(nil) { return } }
        } catch {
            end(error, during: negotiation)
        }
    }

    /// Ends the steps because of an error. One of the socket is the proxy's before it has connected.
    fileprivate func end(_ error: any Error, during negotiation: ProxyNegotiation?) {
        end(negotiation?.proxy.failure(error) ?? error)
    }

    func fail(_ error: any Error) { end(error) }

    /// Ends the steps.
    ///
    /// - Returns: False if another thread has protected the connection meanwhile, so that they go on.
    @discardableResult
    fileprivate func end(_ error: (any Error)?) -> Bool {
        let isCancelled = state.withLock { $0.isCancelled }
        guard isCancelled || connection.finishHandshake(error) else { return false }
        takeSteps()?.value.end()
        return true
    }
}

/// Makes the steps of a handshake when the socket has bytes for them. Confined to the streams thread's loop. Closing the
/// socket ends it.
private final class HandshakeSteps: EventSource {
    private var handshake: SocketHandshake?
    private var negotiation: ProxyNegotiation?
    private var timeout: Timer?

    init(_ handshake: SocketHandshake, _ negotiation: ProxyNegotiation?, until deadline: Deadline) {
        (self.handshake, self.negotiation) = (handshake, negotiation)
        super.init(-1, for: [])
        timeout = Timer.scheduled(after: Deadline.now.duration(to: deadline), forMode: .common) {
            [weak self] _ in
            self?.fail(Errno.timedOut)
        }
    }

    /// Does nothing after ``end()``.
    func begin(on socket: SharedDescriptor) {
        guard isValid else { return }
        adopt(socket)
        do throws(Errno) {
            try setInterest(.readable)
            try RunLoop.current.add(self, forMode: .default)
            proceed()
        } catch {
            fail(error)
        }
    }

    private func proceed() { handshake?.proceed(&negotiation) }

    private func fail(_ error: any Error) { handshake?.end(error, during: negotiation) }

    override func serve(_ readiness: Readiness) { proceed() }

    override func ended() {
        handshake = nil
        timeout?.invalidate()
    }
}

extension ProxyNegotiation {
    /// Makes the steps that the received bytes allow. Returns whether the proxy has connected.
    fileprivate mutating func proceed(over wire: SocketWire) throws -> Bool {
        while !isComplete {
            if !output.isEmpty {
                try takeOutput().withBytes { (bytes) throws(Errno) in try wire.send(bytes) }
            }
            var bytes = [UInt8](repeating: 0, count: missingCount)
            guard
                let count = try bytes.withMutableBytes({ (room) throws(Errno) in try wire.receive(into: &room)
                })
            else { return false }
            try receive(bytes.prefix(count))
        }
        return true
    }
}

extension SocketConnection {
    /// What the connection has to ask its proxy; nil without one.
    fileprivate func makeNegotiation() throws(StreamProxyError) -> ProxyNegotiation? {
        guard let proxy = details?.requirements.proxy, let target = proxyTarget else { return nil }
        return try ProxyNegotiation(proxy, to: target)
    }
}

// MARK: - Protecting a connection

extension SocketConnection {
    /// What the transport sends to and receives from.
    var wire: SocketWire {
        SocketWire(connection: self, buffer: bufferSlot.buffer ?? details?.closedBuffer)
    }

    /// Protects a connection that is open, from the next byte on. Bytes that were written before are sent
    /// before the handshake.
    func begin(_ upgrade: State.Upgrade) {
        let hasUnused = upgrade.input?.dropPutBackBytes() ?? false
        for engine in [upgrade.input, upgrade.output] { engine?.updateReadinessSource() }
        guard upgrade.isConnected, let channel else { return }
        if hasUnused {
            finishHandshake(channel.unprotectedBytes(from: subject))
            return
        }
        let deadline = Deadline.now.advanced(by: upgrade.timeout)
        state.withLock { makeHandshake(&$0, until: deadline) }?.start()
    }

    /// Makes the handshake that the connection waits for next; nil if no half waits for it.
    func makeHandshake(_ state: inout State, until deadline: Deadline) -> SocketHandshake? {
        guard !state.hasEnded, let engine = state.output ?? state.input else { return nil }
        bufferSlot.requireBuffer(for: engine) { bufferTransport }
        let handshake = SocketHandshake(self, until: deadline, isUpgrade: state.details.isUpgrade)
        state.details.opening = handshake
        return handshake
    }

    /// The handshake has ended.
    ///
    /// - Returns: False, and nothing has happened, if there is another one to make, because the connection
    ///   was protected while its proxy connected.
    @discardableResult
    func finishHandshake(_ error: (any Error)?) -> Bool {
        let (isLast, engines) = state.withLock { state -> (Bool, [StreamEngine?]?) in
            if error == nil, channel?.isEstablished == false { return (false, nil) }
            state.details.opening = nil
            guard !state.hasEnded, state.fault == nil else { return (true, nil) }
            state.connecting = error.map { .failed($0) } ?? .ready
            return (true, [state.input, state.output])
        }
        guard isLast else { return false }
        if let error { fail(errno(for: error), on: nil) }
        wakeWaiters()
        guard let engines, error == nil else { return true }
        startTimeouts()
        if channel?.isEnding == true { try? shutDownSocket() }
        for engine in engines { engine?.updateReadinessSource() }
        releaseEvents()
        return true
    }

    /// Waits until the handshake has succeeded; throws what a read or a write of the half throws if it has
    /// not.
    func waitForHandshake(_ half: Half) throws(Errno) {
        waitUntilOpen(half)
        if let fault { throw fault }
        if state.withLock({ $0.isClosed(half) }) { throw .canceled }
    }

    /// Shuts the socket down for writing, after the buffered bytes.
    func shutDownSocket() throws(Errno) {
        guard bufferSlot.buffer?.finish(.shutDown) != true else { return }
        try shared.shutDown()
        awaitAcknowledgement()
    }

    /// Returns what a transport has returned, or records why it has failed.
    @discardableResult
    func check<Value>(_ result: Result<Value, any Error>) throws(Errno) -> Value {
        switch result {
        case .success(let value): return value
        case .failure(let error): throw errno(for: error)
        }
    }

    /// The error of a system call; that of a transport is recorded, and replaces the one that is returned.
    private func errno(for error: any Error) -> Errno {
        if let errno = error as? Errno { return errno }
        state.withLock { state in
            if state.details.failure == nil { state.details.failure = error }
        }
        return .protocolError
    }
}

extension SocketConnection.State {
    /// A connection that is protected while it is open.
    struct Upgrade {
        let input: StreamEngine?
        let output: StreamEngine?
        /// Whether the handshake can begin.
        let isConnected: Bool
        let timeout: Duration

        init(_ state: inout SocketConnection.State) {
            (input, output) = (state.input, state.output)
            isConnected = state.isReady
            if isConnected { state.details.isUpgrade = true }
            timeout = state.details.options.connectTimeout
        }
    }
}
