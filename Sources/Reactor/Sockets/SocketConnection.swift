import CReactorLinux
import Glibc
import Synchronization
import SystemPackage

/// The socket that the two streams of a pair share, from before it exists until both are closed.
final class SocketConnection: Sendable {
    enum Half {
        case input
        case output

        var other: Half { self == .input ? .output : .input }
    }

    /// A value for each half.
    struct Halves<Value> {
        var input: Value
        var output: Value

        init(_ value: Value) { (input, output) = (value, value) }

        subscript(half: Half) -> Value {
            get { half == .input ? input : output }
            set { if half == .input { input = newValue } else { output = newValue } }
        }
    }

    /// Where the socket comes from.
    enum Origin: Sendable {
        /// An existing socket, and its peer where that is known.
        case descriptor(CInt, peer: SocketAddress?)
        case address(SocketAddress)
        case host(String, port: UInt16)
    }

    struct State {
        /// What an accepted connection with the default options rarely has; nil until it is set.
        private(set) var details: SocketDetails?
        var connecting = Availability.waiting
        var hasOpened = false
        var announcement = Announcement.awaited
        /// Why the connection has failed. Bytes that arrived before that can still be read.
        var failure: (error: Errno, half: Half?, operation: IOError.Operation?)?
        /// The engines of the halves, which are refreshed after changes; nil until they are open.
        var engines = Halves<StreamEngine?>(nil)
        var closed = Halves(false)

        var isClosed: Bool { closed.input && closed.output }

        var isReady: Bool { if case .ready = connecting { true } else { false } }

        /// Whether a socket that gets connected now is of no use.
        var hasEnded: Bool { isClosed || refusal != nil }

        /// The progress of opening a half.
        var progress: Availability { refusal.map { .failed($0) } ?? connecting }

        /// Why neither half opens or moves another byte.
        var refusal: (any Error)? {
            details.flatMap { $0.requirements.refusal ?? $0.failure }
        }

        /// The details, which are made if there are none.
        mutating func detailsToChange() -> SocketDetails {
            if let details { return details }
            let made = SocketDetails()
            details = made
            return made
        }
    }

    let shared: SharedDescriptor
    let origin: Origin
    /// Whether closing the socket shuts the connection down first. An input alone has sent nothing, and
    /// duplicates of its descriptor may keep using the connection.
    let shutsDown: Bool
    let state: Mutex<State>
    /// Whether `failure` is set: spares every read and write the lock.
    private let hasFailure = Atomic(false)
    /// How many bytes had come when the connection failed: they are read before the fault is reported. A peer that
    /// continues to send does not postpone it.
    private let unreadCount = Atomic(0)
    /// The calls that send, and may take the error of a reset from the kernel before a read finds it.
    private let sendCount = Atomic<Int32>(0)
    private let sendError = Atomic<Int32>(0)
    /// Whether nothing is left to receive from the socket.
    private let isAtEnd = Atomic(false)
    /// Whether there are two halves, whose events are announced together.
    let isPair: Bool
    /// Whether the halves' events have been released.
    let announced = Atomic(false)
    /// Announced to threads that wait for the connection; nil for an existing socket, which has nothing to
    /// wait for but the handshake of its ``channel``.
    let changed: EventCount?
    let bufferSlot = WriteBufferSlot()
    /// Set once: when the connection is opened, or is protected after that.
    private let channelSlot = LazyReference<SecureChannel>()
    /// Set once, with the first timeout: without, no clock is read.
    let timeoutsSlot = LazyReference<SocketTimeouts>()

    /// Shares an existing descriptor, which must be a socket's.
    ///
    /// - Parameter half: The only direction to use; nil for both.
    init(_ shared: SharedDescriptor, peer: SocketAddress? = nil, only half: Half? = nil) {
        self.shared = shared
        origin = .descriptor(shared.number, peer: peer)
        shutsDown = half != .input
        changed = nil
        isPair = half == nil
        var closed = Halves(false)
        if let half { closed[half.other] = true }
        state = Mutex(State(connecting: .ready, closed: closed))
    }

    /// Shares a socket that is connected when the first half is opened.
    init(connectingTo origin: Origin) {
        shared = SharedDescriptor()
        self.origin = origin
        shutsDown = true
        isPair = true
        changed = EventCount()
        state = Mutex(State())
    }

    // MARK: Opening

    func open(_ half: Half, for engine: StreamEngine) {
        // Only the first half waits for a pass.
        if isPair { engine.hold(awaitsPass: state.withLock { !$0.hasOpened }) }
        let (opening, isAnnounced) = state.withLock { state -> (SocketOpening?, Bool) in
            if state.hasOpened { state.passCompleted() } else { makeChannel(&state) }
            state.hasOpened = true
            // A half that another thread has closed already would never release the engine.
            if !state.closed[half] {
                state.engines[half] = engine
                if half == .output { bufferSlot.open(for: engine) { bufferClient } }
            }
            let isAnnounced = state.announcement == .made
            guard case .waiting = state.progress, state.details?.opening == nil else {
                return (nil, isAnnounced)
            }
            return (makeOpening(&state), isAnnounced)
        }
        if let opening { opening.start() } else { startTimeouts() }
        if isAnnounced { engine.release() } else { releaseEvents(opening: half) }
    }

    var progress: Availability { state.withLock { $0.progress } }

    /// Wakes the threads that wait for the connection.
    func wakeWaiters() {
        changed?.broadcast()
        channel?.changed.broadcast()
    }

    // MARK: Moving bytes

    /// Moves the connection's bytes in the place of its socket; nil for plain text. A transfer asks for it as
    /// it begins, so that none that begins once it is there moves a plain byte.
    var channel: SecureChannel? { channelSlot.load() }

    /// The connection's timeouts, if it has had any.
    var timeouts: SocketTimeouts? { timeoutsSlot.load() }

    /// Whether a transfer concerns only its half and the socket: there is no channel, no fault and no timeout.
    var isPlain: Bool {
        channelSlot.isEmpty && !hasFailure.load(ordering: .acquiring) && timeoutsSlot.isEmpty
    }

    /// Creates the channel that the requirements ask for, if they do.
    func makeChannel(_ state: inout State) {
        guard let security = state.security else { return }
        channelSlot.storeIfNil(SecureChannel(security))
        if state.isReady { state.connecting = .waiting }
    }

    // The halves hold no reference to the descriptor, and would retain it for each call.

    /// Sends bytes to the socket.
    func send(_ bytes: RawSpan) throws(Errno) -> Int {
        try whileSending { () throws(Errno) in try shared.send(bytes) }
    }

    /// Calls `body`, which sends without waiting, and records its error for ``errorAtEnd``.
    @inline(__always)
    func whileSending<Result>(_ body: () throws(Errno) -> Result) throws(Errno) -> Result {
        sendCount.add(1, ordering: .relaxed)
        defer { sendCount.subtract(1, ordering: .releasing) }
        do throws(Errno) { return try body() } catch {
            // The first: later sends fail with EPIPE.
            _ = sendError.compareExchange(expected: 0, desired: error.rawValue, ordering: .relaxed)
            throw error
        }
    }

    /// Why the end that a read has found is none: the kernel reports a reset once, perhaps to a send on another thread.
    ///
    /// A send to a peer that has ended orderly, and reads no more, fails with EPIPE.
    var errorAtEnd: Errno? {
        while sendCount.load(ordering: .acquiring) > 0 { sched_yield() }
        let error = Errno(rawValue: sendError.load(ordering: .relaxed))
        return [Errno(rawValue: 0), .brokenPipe, .noBufferSpace, .noMemory].contains(error) ? nil : error
    }

    /// Receives clear bytes: 0 at the end, nil if there are none.
    func receive(into buffer: inout MutableRawSpan) throws(Errno) -> Int? {
        let count: Int?
        if let channel {
            count = try channel.receive(into: &buffer, for: self)
            // Also bytes that the channel had: the client waits for the peer again.
            if count ?? 0 > 0 { timeouts?.noteReceived() }
        } else {
            count = try shared.receive(into: &buffer)
            if count == 0 { noteEnd() }
            if count ?? 0 > 0, isOvertaken { throw .connectionAbort }
            noteReceived(ofSocket: count ?? 0)
        }
        return count
    }

    /// The socket has had bytes for the client or its channel.
    func noteReceived(ofSocket count: Int) {
        guard count > 0 else { return }
        timeouts?.noteReceived()
        if hasFailure.load(ordering: .acquiring) { unreadCount.subtract(count, ordering: .relaxed) }
    }

    /// Whether bytes that had come when the connection failed are left in the socket.
    var hasBytesBeforeFailure: Bool { unreadCount.load(ordering: .relaxed) > 0 && shared.hasUnreadBytes }

    /// Whether clear bytes, the end or a failure have been received already.
    var hasReceived: Bool { channel?.hasReceived(for: self) ?? false }

    /// Whether a handshake has begun during a plain transfer, whose bytes may be between the handshake's.
    var isOvertaken: Bool { channel?.hasBegun ?? false }

    /// The end of the socket's input has been received.
    func noteEnd() { isAtEnd.store(true, ordering: .relaxed) }

    var hasReachedEnd: Bool { isAtEnd.load(ordering: .relaxed) }

    // MARK: Faults

    /// Records why the connection has failed, and notifies the other half; or both, if neither half found
    /// out.
    ///
    /// - Parameter operation: What has failed; nil for what each half does.
    func fail(_ error: Errno, on half: Half?, during operation: IOError.Operation? = nil) {
        let ended = state.withLock { state -> (opening: SocketOpening?, waits: Halves<DescriptorWait?>)? in
            guard state.failure == nil else {
                // A write may find the broken pipe before a read finds out why.
                if state.failure?.error == .brokenPipe, error == .connectionReset {
                    state.failure?.error = error
                }
                return nil
            }
            state.failure = (error, half, operation ?? half.map { $0 == .input ? .read : .write })
            unreadCount.store(shared.unreadByteCount, ordering: .relaxed)
            hasFailure.store(true, ordering: .releasing)
            if case .waiting = state.connecting { state.connecting = .failed(error) }
            return (state.details?.opening.take(), state.details?.waits ?? Halves(nil))
        }
        guard let ended else { return }
        ended.opening?.cancel()
        ended.waits.input?.end()
        ended.waits.output?.end()
        bufferSlot.buffer?.abandon(error)
        if let half { notify(half.other) } else { notifyBoth() }
        wakeWaiters()
        releaseEvents()
    }

    /// Why the connection has failed.
    var failure: Errno? { hasFailure.load(ordering: .acquiring) ? state.withLock { $0.failure?.error } : nil }

    /// Why the connection has failed, unless bytes that arrived before may be left to read.
    var failureForReading: Errno? {
        guard hasFailure.load(ordering: .acquiring) else { return nil }
        return state.withLock { $0.failure?.half == .output ? nil : $0.failure?.error }
    }

    func notify(_ half: Half) {
        state.withLock { $0.engines[half] }?.refresh()
    }

    /// Notifies both halves, with one wake-up of the loop that both are on.
    func notifyBoth(_ change: (inout StreamEngine.State) -> Void = { _ in }) {
        let engines = state.withLock { $0.engines }
        StreamEngine.update(engines.input, engines.output) { state in
            change(&state)
            state.refresh()
        }
    }

    // MARK: Waiting

    /// Waits until a read would not block, or the connection has failed.
    func waitForBytes() throws(Errno) {
        guard let channel else { return try wait(for: CInt(POLLIN), .input) }
        guard channel.isEstablished else { return try waitForHandshake(.input) }
        try channel.whileReading(for: self) { () throws(Errno) in try wait(for: CInt(POLLIN), .input) }
    }

    /// Waits until a read or a write would not block, or the connection has failed.
    ///
    /// - Throws: `Errno.canceled` when another thread closes the half.
    func wait(for events: CInt, _ half: Half) throws(Errno) {
        let wait = try state.withLock { (state) throws(Errno) -> DescriptorWait? in
            if state.closed[half] { throw .canceled }
            return state.failure == nil ? state.wait(of: half) : nil
        }
        guard let wait else { return }
        _ = try shared.use { (number) throws(Errno) in try wait.wait(for: events, of: number) }
    }

    /// Waits until connecting has succeeded or failed, or another thread closes the half.
    func waitUntilOpen(_ half: Half) {
        guard let changed = changed ?? channel?.changed else { return }
        changed.wait {
            state.withLock { state -> Void? in
                if case .waiting = state.progress, !state.closed[half] { nil } else { () }
            }
        }
    }
}

extension SocketConnection.State {
    fileprivate mutating func wait(of half: SocketConnection.Half) -> DescriptorWait {
        let details = detailsToChange()
        if let known = details.waits[half] { return known }
        let wait = DescriptorWait()
        details.waits[half] = wait
        return wait
    }
}
