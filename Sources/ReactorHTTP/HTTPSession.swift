public import Dispatch
public import Reactor

/// Transfers over HTTP and HTTPS that a run loop drives, with their connections and settings.
///
/// ```swift
/// let session = HTTPSession(on: .main)
/// session.start(HTTPRequest("https://example.org/")) { result in
///     switch result {
///     case .success(let response): print(response.status, response.body.count)
///     case .failure(let error): print(error)
///     }
/// }
/// ```
///
/// The session's loop sends and receives while it runs in one of the session's modes. In other modes transfers are paused,
/// and no timeout counts. Other threads only write files, and look up names if libcurl was built so. Callbacks are called on
/// the loop, or on the queue that a transfer names; they may start, suspend and cancel transfers, run the loop, and end the
/// session. A consumer that is slower than the network pauses its transfer, so memory is bounded whatever the size of the body.
///
/// A session keeps idle connections for later requests. It does its work with libcurl, and verifies the certificates of
/// servers. Proxies are taken from the environment (`https_proxy`, …).
///
/// All methods may be called from any thread. Running transfers keep the loop's modes from being empty. Releasing a session
/// lets its transfers complete, as ``finishAndInvalidate()`` does.
public final class HTTPSession: Sendable {
    let core: SessionCore

    /// Creates a session.
    ///
    /// - Parameters:
    ///   - configuration: Its settings.
    ///   - runLoop: The loop that drives its transfers; the caller makes sure that it runs.
    ///   - modes: The modes of the loop in which they proceed.
    /// - Precondition: `modes` is not empty, and the numbers in `configuration` are as it says.
    public init(
        _ configuration: Configuration = Configuration(), on runLoop: RunLoop,
        inModes modes: [RunLoop.Mode] = [.common]
    ) {
        require(!modes.isEmpty, "An HTTPSession must have at least one run loop mode.")
        configuration.requireValid()
        core = SessionCore(configuration, on: runLoop, modes)
    }

    deinit { core.invalidate(cancels: false) }

    /// The session's settings.
    public var configuration: Configuration { core.configuration }

    /// The loop that drives the transfers.
    package var runLoop: RunLoop { core.runLoop }

    /// The modes of the loop in which the transfers continue.
    package var modes: [RunLoop.Mode] { core.modes }

    /// Starts a transfer.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - body: The body of the request; nil for none.
    ///   - destination: Where the body of the response goes.
    ///   - delivery: Where the callbacks are called.
    ///   - group: A group that the transfer is in until its completion has returned.
    ///   - progress: Called after bytes have been sent or received. One call may stand for several changes.
    ///   - completion: Called once, as the last callback, never inside this call. On another thread it may be called before
    ///     this returns.
    /// - Returns: The transfer, to cancel it, to suspend it, and to ask how far it has come.
    @discardableResult
    public func start(
        _ request: HTTPRequest, body: HTTPSource? = nil, to destination: HTTPDestination = .memory(),
        delivery: HTTPDelivery = .session,
        group: DispatchGroup? = nil, progress: (@Sendable (HTTPTransfer.Progress) -> Void)? = nil,
        completion: @escaping @Sendable (Result<HTTPTransfer.Response, HTTPError>) -> Void
    ) -> HTTPTransfer {
        core.start(request, body, destination, delivery, group) { _ in
            var callbacks = HTTPTransfer.Callbacks(progress: progress, completion: completion)
            if case .handler(let handler) = destination.kind { callbacks.event = handler }
            return callbacks
        }
    }

    /// Starts a transfer whose body is read from a stream, at the reader's speed.
    ///
    /// So hand-offs, line readers and async sequences work on bodies. If the transfer fails, so does
    /// the stream, with the same ``HTTPError``. Closing the stream before its end cancels the transfer.
    ///
    /// - Parameters:
    ///   - request: What to send.
    ///   - body: The body of the request; nil for none.
    ///   - bufferSize: The maximum number of bytes between the session and the reader; positive.
    ///   - delivery: Where `completion` is called.
    ///   - completion: Called once, when the whole body is in the stream's buffer.
    /// - Returns: The stream, which the caller opens, and the transfer.
    public func startReading(
        _ request: HTTPRequest, body: HTTPSource? = nil, bufferSize: Int = 262_144,
        delivery: HTTPDelivery = .session,
        completion: @escaping @Sendable (Result<HTTPTransfer.Response, HTTPError>) -> Void = { _ in }
    ) -> (stream: InputStream, transfer: HTTPTransfer) {
        require(
            bufferSize > 0, "HTTPSession.startReading needs a positive buffer size (it is \(bufferSize)).")
        let buffer = BoundBuffer(capacity: bufferSize)
        let destination = HTTPDestination(
            kind: .stream(Transferred(OutputStream(writing: buffer)), pair: buffer))
        let callbacks = HTTPTransfer.Callbacks(completion: completion)
        let transfer = core.start(request, body, destination, delivery, nil) { _ in callbacks }
        return (InputStream(reading: buffer), transfer)
    }

    /// Closes the connections once the running transfers have completed. Transfers that are started later fail with
    /// ``HTTPError/Kind/sessionEnded``.
    public func finishAndInvalidate() { core.invalidate(cancels: false) }

    /// Ends running transfers with ``HTTPError/Kind/sessionEnded``, and closes the connections. Transfers that are started
    /// later fail likewise.
    public func invalidateAndCancel() { core.invalidate(cancels: true) }
}

/// The part of a session that its transfers retain: passes what any thread asks for on to the loop's thread.
final class SessionCore: Sendable {
    enum Command: Sendable {
        case start(HTTPTransfer, HTTPDestination)
        case cancel(UInt64)
        /// The client resumes a transfer, or a consumer has room again.
        case resume(UInt64)
        case cancelAll
    }

    private struct State {
        var commands: ArraySlice<Command> = []
        /// Those that have not ended.
        var transfers: [UInt64: HTTPTransfer] = [:]
        var lastNumber: UInt64 = 0
        var isInvalidated = false
        /// Wakes the loop for commands, keeps its modes from being empty, and reports the end of its thread. In the loop
        /// while there are transfers.
        var source: RunLoop.Source?
        var sourceNumber = 0
        /// Made by the first transfer, on the loop's thread.
        var multi: LoopOwned<MultiHandle>?
    }

    /// How many commands a pass of the loop carries out: less than a millisecond's work.
    private static let batchSize = 100

    let configuration: HTTPSession.Configuration
    let runLoop: RunLoop
    let modes: [RunLoop.Mode]
    private let state = Mutex(State())

    init(_ configuration: HTTPSession.Configuration, on runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        self.configuration = configuration
        self.runLoop = runLoop
        self.modes = modes
    }

    // MARK: From any thread

    func start(
        _ request: HTTPRequest, _ body: HTTPSource?, _ destination: HTTPDestination,
        _ delivery: HTTPDelivery, _ group: DispatchGroup?,
        _ makeCallbacks: (HTTPTransfer) -> HTTPTransfer.Callbacks
    ) -> HTTPTransfer {
        let number = state.withLock { state in
            state.lastNumber += 1
            return state.lastNumber
        }
        let transfer = HTTPTransfer(
            request, body, number: number, in: self, delivery: delivery, group: group, makeCallbacks)
        let (isAccepted, newSource) = state.withLock { state -> (Bool, RunLoop.Source?) in
            guard !state.isInvalidated else { return (false, nil) }
            state.transfers[number] = transfer
            state.commands.append(.start(transfer, destination))
            guard state.source == nil else { return (true, nil) }
            state.sourceNumber += 1
            let source = makeSource(state.sourceNumber)
            state.source = source
            return (true, source)
        }
        guard isAccepted else {
            refuse(transfer, destination)
            return transfer
        }
        if let newSource { add(newSource) }
        wake()
        return transfer
    }

    func post(_ command: Command) {
        let isNeeded = state.withLock { state in
            guard state.source != nil else { return false }
            state.commands.append(command)
            return true
        }
        if isNeeded { wake() }
    }

    /// Wakes the loop to carry out the commands and to resume the transfers that a callback's limit has paused.
    func wake() {
        state.withLock { $0.source }?.signal()
        runLoop.wakeUp()
    }

    func invalidate(cancels: Bool) {
        let isIdle = state.withLock { state in
            state.isInvalidated = true
            return state.transfers.isEmpty
        }
        if isIdle { return closeConnections() }
        if cancels { post(.cancelAll) }
    }

    private func makeSource(_ number: Int) -> RunLoop.Source {
        RunLoop.Source(
            named: { "HTTP session" }, cancelled: { [weak self] _, _ in self?.sourceLeftLoop(number) },
            perform: { [self] in perform() })
    }

    private func add(_ source: RunLoop.Source) {
        for mode in modes { runLoop.add(source, forMode: mode) }
        // A loop whose thread has ended accepts nothing. Nor does it if the transfers have ended meanwhile, which
        // invalidates the source: the session continues then.
        if !modes.contains(where: { runLoop.contains(source, forMode: $0) }), source.isValid { end() }
    }

    /// Ends a transfer that does not begin.
    private func refuse(_ transfer: HTTPTransfer, _ destination: HTTPDestination) {
        let error = HTTPError(.sessionEnded, transfer.request)
        destination.fail(with: error)
        // A stream may be the client's subclass, so it is closed where callbacks are called, and never inside `start`.
        transfer.outbox.complete(.failure(error)) {
            destination.close()
            transfer.body?.close()
        }
    }

    // MARK: The end

    /// Called for each mode that the source leaves: because there are no transfers, or because the loop's thread ends.
    private func sourceLeftLoop(_ number: Int) {
        if state.withLock({ $0.source != nil && $0.sourceNumber == number }) { end() }
    }

    /// Ends all transfers because the loop's thread has ended.
    private func end() {
        let (transfers, commands, source) = state.withLock { state in
            state.isInvalidated = true
            defer { (state.transfers, state.commands) = ([:], []) }
            return (
                state.transfers.values.sorted { $0.number < $1.number }, state.commands, state.source.take()
            )
        }
        source?.invalidate()
        closeConnections()
        for case .start(let transfer, let destination) in commands { refuse(transfer, destination) }
        for transfer in transfers {
            transfer.outbox.complete(.failure(HTTPError(.sessionEnded, transfer.request)))
        }
    }

    private func closeConnections() {
        let multi = state.withLock { $0.multi.take() }
        // Transfers run only if this is the loop's thread, which ends.
        if runLoop.isCurrent { multi?.value.end() }
    }

    // MARK: On the loop's thread

    private func perform() {
        let multi = multiHandle()
        let (commands, hasMore) = state.withLock { state in
            let commands = state.commands.prefix(Self.batchSize)
            state.commands =
                state.commands.count > commands.count ? state.commands.dropFirst(commands.count) : []
            return (commands, !state.commands.isEmpty)
        }
        if hasMore { wake() }
        multi.carryOut(commands)
    }

    private func multiHandle() -> MultiHandle {
        if let known = state.withLock({ $0.multi }) { return known.value }
        let made = LoopOwned(MultiHandle(self), on: runLoop)
        state.withLock { $0.multi = made }
        return made.value
    }

    /// Ends a transfer, with nothing of it left in the multi handle.
    func ended(_ transfer: HTTPTransfer, _ result: Result<HTTPTransfer.Response, HTTPError>) {
        let (source, closes) = state.withLock { state -> (RunLoop.Source?, Bool) in
            state.transfers[transfer.number] = nil
            guard state.transfers.isEmpty else { return (nil, false) }
            state.commands = []
            return (state.source.take(), state.isInvalidated)
        }
        transfer.outbox.complete(result)
        source?.invalidate()
        if closes { closeConnections() }
    }
}
