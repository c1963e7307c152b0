import Glibc
import Synchronization
import SystemPackage

/// The socket that the two halves of a pair share, from before it exists until both have let go of it.
final class SocketChannel: Sendable {
    enum Half {
        case input
        case output
    }

    /// Where the socket comes from: a word, as most are there.
    indirect enum Origin: Sendable {
        /// It is there.
        case descriptor
        case address(SocketAddress)
        case host(String, port: UInt16)
    }

    struct State {
        var box = SocketDetailsBox.usual
        /// How far connecting has come.
        var connection = Prospect.waiting
        var hasOpened = false
        /// Why the connection is no more; what had arrived before that can still be read.
        var fault: (error: Errno, half: Half?)?
        /// The halves' engines, which are told when something has changed for them; nil until they are open.
        var input: StreamEngine?
        var output: StreamEngine?
        var isInputClosed = false
        var isOutputClosed = false

        /// Whether both halves have let go of the socket.
        var isClosed: Bool { isInputClosed && isOutputClosed }

        /// Whether a connection would come too late.
        var isOver: Bool { isClosed || refusal != nil }

        /// How far the opening of a half has come.
        var progress: Prospect { refusal.map { .failed($0) } ?? connection }

        /// Why neither half opens, nor moves another byte.
        var refusal: StreamRequirementError? {
            if case .own(let details) = box { details.requirements.refusal } else { nil }
        }

        var details: SocketDetails {
            get { box.details }
            set { box.details = newValue }
        }
    }

    let holder: DescriptorHolder
    let origin: Origin
    let state: Mutex<State>
    /// Whether `fault` is set: spares every read and write the lock.
    private let hasFault = Atomic(false)
    /// Tells those who wait for the connection; nil for a socket that is there.
    let changed: Condition?
    /// Whether anybody has set a timeout: else no clock is read.
    let isTimed = Atomic(false)

    /// Shares a socket that is there, and known to be one.
    init(_ holder: DescriptorHolder) {
        self.holder = holder
        origin = .descriptor
        changed = nil
        state = Mutex(State(connection: .ready))
    }

    /// Takes a socket for a stream that goes one way only.
    convenience init(_ holder: DescriptorHolder, only half: Half) {
        self.init(holder)
        state.withLock { ($0.isInputClosed, $0.isOutputClosed) = (half == .output, half == .input) }
    }

    /// Shares a socket that will be connected when the first half is opened.
    init(connectingTo origin: Origin) {
        holder = DescriptorHolder()
        self.origin = origin
        changed = Condition()
        state = Mutex(State())
    }

    // MARK: Opening

    func open(_ half: Half, for engine: StreamEngine) {
        let connector = state.withLock { state -> SocketConnector? in
            state.hasOpened = true
            // One that another thread has closed meanwhile is not told of anything, and nobody would let go of the
            // engine.
            switch half {
            case .input: if !state.isInputClosed { state.input = engine }
            case .output: if !state.isOutputClosed { state.output = engine }
            }
            guard case .waiting = state.progress, state.details.connecting == nil else { return nil }
            let connector = makeConnector(timeout: state.details.options.connectTimeout)
            state.details.connecting = connector
            return connector
        }
        if let connector { connector.start() } else { keepTime() }
    }

    private func makeConnector(timeout: Duration) -> SocketConnector {
        SocketConnector(to: origin, timeout: timeout) { [weak self] outcome in
            if let self {
                finishConnecting(outcome)
            } else if case .success(let socket) = outcome {
                socket.close()
            }
        }
    }

    var progress: Prospect { state.withLock { $0.progress } }

    private func finishConnecting(_ result: Result<ConnectedSocket, any Error>) {
        state.withLock { state in
            state.details.connecting = nil
            switch result {
            case .failure(let error): state.connection = .failed(error)
            case .success(let socket) where state.isOver: socket.close()
            case .success(let socket):
                holder.adopt(socket.number)
                state.details.options.apply(to: socket.number)
                state.details.peer = socket.peer
                state.connection = .ready
            }
        }
        changed?.announce()
        keepTime()
        notify(.input)
        notify(.output)
    }

    // MARK: Closing

    /// Lets go of one half; with the other, of the socket. Nothing is told to the peer before that.
    func close(_ half: Half) {
        let (connector, waker, isOver) = state.withLock { state -> (SocketConnector?, SocketWaker?, Bool) in
            switch half {
            case .input: (state.isInputClosed, state.input) = (true, nil)
            case .output: (state.isOutputClosed, state.output) = (true, nil)
            }
            let isOver = state.isClosed
            if isOver, case .waiting = state.connection { state.connection = .failed(Errno.canceled) }
            let waker = state.details.wakers[half]
            return (isOver ? state.takeConnector() : nil, waker, isOver)
        }
        connector?.cancel()
        waker?.wake()
        changed?.announce()
        guard isOver else { return }
        stopKeepingTime()
        holder.close()
    }

    /// Lets go of a half's engine, though the half itself stays open.
    func dismiss(_ half: Half) {
        let dropped = state.withLock { half == .input ? $0.input.take() : $0.output.take() }
        withExtendedLifetime(dropped) {}
    }

    // MARK: Moving bytes

    // The halves have no holder of their own, and would retain this one for each call.

    func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int { try unsafe holder.send(bytes) }

    func receive(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Int? {
        try unsafe holder.receive(into: buffer)
    }

    // MARK: Faults

    /// Remembers what has become of the connection, and tells the other half; or both, if neither found it
    /// out.
    func fail(_ error: Errno, on half: Half?) {
        let wakers = state.withLock { state -> SocketWakers? in
            guard state.fault == nil else { return nil }
            state.fault = (error, half)
            hasFault.store(true, ordering: .releasing)
            return state.details.wakers
        }
        guard let wakers else { return }
        for half in [Half.input, .output] { wakers[half]?.wake() }
        if half != .input { notify(.input) }
        if half != .output { notify(.output) }
    }

    /// Why the connection is no more.
    var fault: Errno? { hasFault.load(ordering: .acquiring) ? state.withLock { $0.fault?.error } : nil }

    /// Why the connection is no more, unless there may be bytes to read that came before that.
    var faultForReading: Errno? {
        guard hasFault.load(ordering: .acquiring) else { return nil }
        return state.withLock { $0.fault?.half == .output ? nil : $0.fault?.error }
    }

    func notify(_ half: Half) {
        let engine = state.withLock { half == .input ? $0.input : $0.output }
        engine?.refresh()
    }
}
