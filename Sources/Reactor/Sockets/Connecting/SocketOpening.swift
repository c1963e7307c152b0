import SystemPackage

/// Makes a connection usable, on the streams thread: looks up the host, connects, and makes the handshakes with the proxy and
/// with the peer. The streams' loops neither wait for it nor compute for it.
final class SocketOpening: Sendable {
    private struct State {
        var isCancelled = false
        var steps: LoopOwned<OpeningSteps>?
    }

    fileprivate let connection: SocketConnection
    /// Whether the connection was usable before, unprotected.
    fileprivate let isUpgrade: Bool
    private let timeout: Duration
    private let begin = Deadline.now
    fileprivate let host = currentTimeSource?.network?.currentHost
    private let state = Mutex(State())

    /// - Parameter timeout: The limit for all of it together.
    init(of connection: SocketConnection, isUpgrade: Bool, timeout: Duration) {
        (self.connection, self.isUpgrade, self.timeout) = (connection, isUpgrade, timeout)
    }

    func start() {
        do throws(Errno) {
            let loop = try ResidentThread.streams.runLoop()
            loop.perform { [self] in begin(on: loop) }
        } catch {
            end(error)
        }
    }

    private func begin(on loop: RunLoop) {
        let alarm = Alarm(on: loop, after: timeout) { [weak self] in self?.timedOut() }
        let steps = LoopOwned(OpeningSteps(of: self, alarm), on: loop)
        let isCancelled = state.withLock { state in
            state.steps = steps
            return state.isCancelled
        }
        if isCancelled { return cancel() }
        alarm.restart(at: begin)
        steps.value.begin(steps)
    }

    /// Cancels the opening. No step that has not begun is made.
    func cancel() { takeSteps()?.performBeforeBlocks { $0.cancel() } }

    private func takeSteps() -> LoopOwned<OpeningSteps>? {
        state.withLock { state in
            state.isCancelled = true
            return state.steps.take()
        }
    }

    private func timedOut() { state.withLock { $0.steps }?.value.fail(Errno.timedOut) }

    /// Ends the opening, because the connection is usable or because of an error.
    ///
    /// - Returns: False if another thread has protected the connection meanwhile: then there is another handshake to make.
    @discardableResult
    fileprivate func end(_ error: (any Error)?) -> Bool {
        func cancelSteps() { takeSteps()?.value.cancel() }
        guard state.withLock({ $0.isCancelled }) else {
            return connection.finishOpening(error, deregister: cancelSteps)
        }
        cancelSteps()
        return true
    }
}

/// The steps of an opening. Confined to the streams thread's loop, which serves it when the socket has bytes for a handshake.
private final class OpeningSteps: EventSource {
    /// Nil once the opening has ended.
    private var opening: SocketOpening?
    private let alarm: Alarm
    private var request: ResolverRequest?
    private var race: HappyEyeballs?
    /// The proxy, until it has connected.
    private var proxy: StreamProxy?
    private var negotiation: ProxyNegotiation?

    init(of opening: SocketOpening, _ alarm: Alarm) {
        (self.opening, self.alarm) = (opening, alarm)
        super.init(-1, for: [])
    }

    /// - Parameter steps: This object, for other threads.
    func begin(_ steps: LoopOwned<OpeningSteps>) {
        guard let opening else { return }
        let (connection, isUpgrade) = (opening.connection, opening.isUpgrade)
        // A connection that was usable is the proxy's tunnel already.
        proxy = isUpgrade ? nil : connection.proxy
        guard connection.needsSocket else {
            guard isUpgrade, let buffer = connection.bufferSlot.buffer else { return beginHandshake() }
            // What was written before the connection was protected is sent first.
            return buffer.whenFlushed(
                FlushCallback {
                    steps.perform { buffer.isEmpty ? $0.beginHandshake() : $0.fail(Errno.canceled) }
                })
        }
        race = HappyEyeballs(connection.options, from: opening.host) { [weak self] outcome in
            self?.connected(outcome)
        }
        switch proxy.map({ .host($0.host, port: $0.port) }) ?? connection.origin {
        case .descriptor: break
        case .address(let address): race?.connect(to: [address])
        case .host(let host, let port): resolve(ResolverQuery(host: host, service: .port(port)), steps)
        }
    }

    // MARK: Connecting

    private func resolve(_ query: ResolverQuery, _ steps: LoopOwned<OpeningSteps>) {
        if let addresses = query.numericAnswer {
            race?.connect(to: addresses)
        } else {
            let request = ResolverRequest(query) { answer in steps.perform { $0.resolved(answer) } }
            self.request = request
            ResolverQueue.shared.add(request)
        }
    }

    private func resolved(_ answer: Resolver.Answer) {
        switch answer {
        case .failure(let error): fail(error)
        case .success(let addresses): race?.connect(to: addresses.interleavingFamilies())
        }
    }

    private func connected(_ outcome: HappyEyeballs.Outcome) {
        switch outcome {
        case .failure(let error): fail(error)
        case .success(let connected):
            guard let opening, opening.connection.adopt(connected) else { return cancel() }
            let needsHandshake = proxy != nil || opening.connection.channel != nil
            if needsHandshake || !opening.end(nil) { beginHandshake() }
        }
    }

    // MARK: Handshakes

    private func beginHandshake() {
        guard isValid, let opening else { return }
        let connection = opening.connection
        guard connection.prepareHandshake() else { return cancel() }
        // Bytes before the first answer of a server were not written by the peer that is about to prove who it is.
        if opening.isUpgrade, let channel = connection.channel, !channel.isServer,
            connection.shared.hasUnreadBytes
        {
            return fail(channel.unprotectedBytes(from: connection.subject))
        }
        do {
            if let proxy, let target = connection.proxyTarget {
                negotiation = try ProxyNegotiation(proxy, to: target)
            }
            adopt(connection.shared)
            try changeInterest(.readable)
            try RunLoop.current.register(self, forMode: .default)
        } catch {
            return fail(error)
        }
        proceed()
    }

    override func serve(_ readiness: Readiness) -> Bool {
        proceed()
        return true
    }

    /// Advances the handshakes as far as possible.
    private func proceed() {
        guard let opening else { return }
        let connection = opening.connection
        do {
            guard try negotiation?.proceed(over: connection.wire) ?? true else { return }
            (negotiation, proxy) = (nil, nil)
            while try connection.channel?.continueHandshake(of: connection) ?? true {
                if opening.end(nil) { return }
            }
        } catch {
            fail(error)
        }
    }

    // MARK: The end

    /// Ends the opening. Until the proxy has connected, an error of the socket is the proxy's.
    func fail(_ error: any Error) { opening?.end(proxy?.failure(error) ?? error) }

    override func ended() {
        opening = nil
        alarm.end()
        request?.cancel()
        race?.cancel()
    }
}

extension ProxyNegotiation {
    /// Advances as far as possible. Returns whether the proxy has connected.
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
