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
        var connection = Availability.waiting
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
        var progress: Availability { refusal.map { .failed($0) } ?? connection }

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
    private let process = ProcessIdentity.current
    /// Tells those who wait for the connection; nil for a socket that is there.
    let changed: Condition?
    /// What is written beyond the kernel's room, if the client asked for that.
    let bufferSlot = WriteBufferSlot()
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
            case .output:
                guard !state.isOutputClosed else { break }
                state.output = engine
                bufferSlot.open(for: engine) { bufferTransport }
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
            self?.finishConnecting(outcome)
        }
    }

    var progress: Availability { state.withLock { $0.progress } }

    private func finishConnecting(_ result: Result<ConnectedSocket, any Error>) {
        state.withLock { state in
            state.details.connecting = nil
            switch result {
            case .failure(let error): state.connection = .failed(error)
            case .success(let connected):
                guard !state.isOver, let number = connected.socket.release() else { break }
                holder.adopt(number)
                state.details.options.apply(to: number)
                state.details.peer = connected.peer
                state.connection = .ready
            }
        }
        changed?.broadcast()
        keepTime()
        notify(.input)
        notify(.output)
    }

    // MARK: Closing

    /// Closes one half; with the other, the socket. The peer is told nothing before that.
    func close(_ half: Half) {
        let closing = state.withLock { $0.close(half, bufferSlot) }
        closing.connector?.cancel()
        closing.wait?.end()
        changed?.broadcast()
        guard closing.isOver else { return }
        stopKeepingTime()
        closeSocket(closing)
    }

    /// Closes the socket, or leaves that to what still has to send what was written.
    private func closeSocket(_ closing: Closing) {
        // The parent of a child of fork(2) goes on with its connections, which must not be shut down for it.
        let isOwned = holder.closesWhenDone && fault == nil && process.isCurrent
        defer { holder.close() }
        if let buffer = closing.unsentBuffer, buffer.finish(isOwned ? .close : .stop) { return }
        guard isOwned, GracefulClose.isNeeded(for: holder) else { return }
        GracefulClose.begin(for: holder, stallTimeout: closing.stallTimeout, engine: closing.output)
    }

    /// Has the process not exit before the peer has everything, once the socket is shut down.
    func awaitAcknowledgement() {
        guard holder.unsentByteCount > 0, let own = holder.duplicate() else { return }
        let (engine, stallTimeout) = state.withLock { ($0.output, $0.writeTimeout) }
        GracefulClose.awaitAcknowledgement(on: own, stallTimeout: stallTimeout, engine: engine)
    }

    /// What closing a half leaves to be done without the lock.
    struct Closing {
        var connector: SocketConnector?
        var wait: DescriptorWait?
        var stallTimeout: Duration?
        var isOver = false
        var unsentBuffer: WriteBuffer?
        /// The output's engine, once both halves are closed.
        var output: StreamEngine?
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
        let waits = state.withLock { state -> SocketWaits? in
            guard state.fault == nil else { return nil }
            state.fault = (error, half)
            hasFault.store(true, ordering: .releasing)
            return state.details.waits
        }
        guard let waits else { return }
        for half in [Half.input, .output] { waits[half]?.end() }
        bufferSlot.buffer?.abandon(error)
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

extension SocketChannel.State {
    /// Closes a half. The output's engine stays until the socket is closed too: it learns of bytes that are lost.
    fileprivate mutating func close(
        _ half: SocketChannel.Half, _ bufferSlot: borrowing WriteBufferSlot
    ) -> SocketChannel.Closing {
        var closing = SocketChannel.Closing()
        closing.stallTimeout = writeTimeout
        switch half {
        case .input: (isInputClosed, input) = (true, nil)
        case .output:
            isOutputClosed = true
            let timeout = writeTimeout ?? WriteBuffer.defaultStallTimeout
            if let buffer = bufferSlot.close(), buffer.finish(.stop, stallTimeout: timeout) {
                details.unsentBuffer = buffer
            }
        }
        if case .own(let details) = box { closing.wait = details.waits[half] }
        guard isClosed else { return closing }
        if case .waiting = connection { connection = .failed(Errno.canceled) }
        closing.isOver = true
        closing.connector = takeConnector()
        closing.unsentBuffer = takeUnsentBuffer()
        closing.output = output.take()
        return closing
    }
}
