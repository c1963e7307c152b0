import Reactor

/// The receiving side of a local port: its sockets, and a queue of the messages that have arrived.
///
/// One thread of this module serves the sockets of all ports, so a port may be in any number of run loops, or
/// in none.
final class PortReceiver: Sendable {
    let address: SocketAddress
    let descriptor: Int32
    private let loop: RunLoop
    private let server: PortServer
    private let queue = ReceiveQueue()

    /// Listens at `address`.
    convenience init(at address: SocketAddress) throws {
        try self.init { handler in try Listener(address, handler: handler, faults: Self.retry) }
    }

    /// Takes ownership of a listening socket.
    convenience init(_ descriptor: FileDescriptor) throws {
        try self.init { handler in
            try Listener(descriptor: descriptor, handler: handler, faults: Self.retry)
        }
    }

    /// A port has no means to report a fault. The listener tries again by itself, and senders wait meanwhile.
    private static func retry(_ listener: Listener, _ error: IOError) {}

    private init(
        _ listen: @escaping @Sendable (@escaping Listener.Handler) throws -> Listener
    ) throws {
        loop = try ResidentThread.ports.runLoop()
        let server = PortServer(loop, queue)
        self.server = server
        (address, descriptor) = try loop.performAndWait {
            let listener = try listen { _, connection in server.accept(connection) }
            try server.open(listener)
            return (listener.localAddress, listener.descriptor.rawValue)
        }
    }

    deinit { close() }

    /// Sets a handler that is called, on any thread, when a message has arrived.
    func setMessageHandler(_ handler: @escaping @Sendable () -> Void) { queue.setMessageHandler(handler) }

    var hasMessages: Bool { !queue.isEmpty }

    /// Removes and returns the first message.
    func takeMessage() -> ReceivedMessage? {
        let (message, hasRoomAgain) = queue.take()
        if hasRoomAgain { loop.perform { [server] in server.resumeReading() } }
        return message
    }

    /// Closes the sockets and discards the messages that have not been taken.
    func close() {
        guard queue.close() else { return }
        loop.performAndWait { [server] in server.close() }
    }
}

extension ResidentThread {
    /// The thread that serves the sockets of all ports. It calls no delegates.
    fileprivate static let ports = ResidentThread(name: "reactor.ports")
}

/// A message and the address that it came from.
struct ReceivedMessage {
    let frame: PortFrame
    let peer: SocketAddress
}

// MARK: - Queue

/// The messages that have arrived at a local port and wait for a run loop to deliver them.
private final class ReceiveQueue: Sendable {
    private struct State {
        var messages: [ReceivedMessage] = []
        /// The index in `messages` of the first message that has not been taken.
        var first = 0
        var byteCount = 0
        var isOpen = true
        var messageHandler: (@Sendable () -> Void)?

        mutating func take() -> ReceivedMessage? {
            guard first < messages.count else { return nil }
            let message = messages[first]
            first += 1
            byteCount -= message.frame.approximateByteCount
            if first == messages.count { (messages, first) = ([], 0) }
            return message
        }
    }

    /// The high-water mark: while this many bytes are queued, connections are not read, and senders block.
    private static let highWaterMark = 1 << 20

    private let state = Mutex(State())

    func setMessageHandler(_ handler: @escaping @Sendable () -> Void) {
        state.withLock { $0.messageHandler = handler }
        if !isEmpty { handler() }
    }

    var isEmpty: Bool { state.withLock { $0.messages.isEmpty } }

    var isFull: Bool { state.withLock { $0.byteCount >= Self.highWaterMark } }

    func append(_ message: ReceivedMessage) {
        let handler = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.isOpen else { return nil }
            state.messages.append(message)
            state.byteCount += message.frame.approximateByteCount
            return state.messageHandler
        }
        handler?()
    }

    /// Removes and returns the first message, and whether this brought the queue below its high-water mark.
    func take() -> (message: ReceivedMessage?, hasRoomAgain: Bool) {
        state.withLock { state in
            let wasFull = state.byteCount >= Self.highWaterMark
            let message = state.take()
            return (message, wasFull && state.byteCount < Self.highWaterMark)
        }
    }

    /// Discards the queued messages and all later ones. Returns false if the queue was already closed.
    func close() -> Bool {
        state.withLock { state in
            defer { state = State(isOpen: false) }
            return state.isOpen
        }
    }
}

extension PortFrame {
    /// About how much memory the message takes.
    fileprivate var approximateByteCount: Int {
        components.reduce(64) { sum, component in
            if case .data(let bytes) = component { sum + bytes.count + 32 } else { sum + 64 }
        }
    }
}

// MARK: - Sockets

/// The sockets of a local port: its listener and the accepted connections.
///
/// `@unchecked Sendable` is correct because mutable state is used only on the loop's thread, which every
/// method checks.
private final class PortServer: @unchecked Sendable {
    let queue: ReceiveQueue
    private let loop: RunLoop
    private var listener: Listener?
    private var connections: [ObjectIdentifier: PortConnection] = [:]

    init(_ loop: RunLoop, _ queue: ReceiveQueue) {
        self.loop = loop
        self.queue = queue
    }

    /// Begins to accept connections.
    func open(_ listener: Listener) throws(Errno) {
        checkThread()
        do throws(Errno) { try loop.add(listener, forMode: .common) } catch {
            listener.close()
            throw error
        }
        self.listener = listener
    }

    func accept(_ connection: Listener.Connection) {
        checkThread()
        let connection = PortConnection(connection, self)
        connections[ObjectIdentifier(connection)] = connection
        connection.open(on: loop)
    }

    func remove(_ connection: PortConnection) {
        checkThread()
        connections[ObjectIdentifier(connection)] = nil
    }

    /// Resumes the connections that stopped reading because the queue was full.
    func resumeReading() {
        checkThread()
        for connection in connections.values { connection.resumeReading() }
    }

    func close() {
        checkThread()
        listener.take()?.close()
        for connection in connections.values { connection.close() }
    }

    private func checkThread() {
        loop.requireCurrent("A port's sockets must be used")
    }
}

/// An accepted connection of a local port. Used only on the thread of its server's loop.
private final class PortConnection: StreamDelegate {
    private static let chunkSize = 65_536

    private let input: InputStream
    private let output: OutputStream
    private let peer: SocketAddress
    /// Retains this connection until it is closed.
    private let server: PortServer
    private var decoder = PortFrameDecoder()
    /// Whether there is data to read once the queue has room.
    private var isReadSuspended = false

    init(_ connection: Listener.Connection, _ server: PortServer) {
        (input, output, peer) = (connection.input, connection.output, connection.peerAddress)
        self.server = server
    }

    func open(on loop: RunLoop) {
        input.delegate = self
        input.schedule(in: loop, forMode: .common)
        input.open()
    }

    func close() {
        input.close()
        output.close()
        server.remove(self)
    }

    func resumeReading() {
        if isReadSuspended { read() }
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable: read()
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    private func read() {
        isReadSuspended = server.queue.isFull
        guard !isReadSuspended else { return }
        decoder.append(input.read(upTo: Self.chunkSize))
        do throws(PortFrame.ParseError) {
            while let frame = try decoder.next() {
                server.queue.append(ReceivedMessage(frame: frame, peer: peer))
            }
        } catch {
            close()
        }
    }
}
