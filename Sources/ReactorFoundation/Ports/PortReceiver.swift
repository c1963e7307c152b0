import Reactor

/// The receiving side of a local port: its sockets, and a queue of the messages that have arrived.
///
/// One thread of this module serves the sockets of all ports, so a port may be in any number of run loops, or
/// in none.
final class PortReceiver: Sendable {
    let address: SocketAddress
    let descriptor: Int32
    private let loop: RunLoop
    private let server: LoopOwned<PortServer>
    private let queue: PortQueue

    /// Listens at `address`.
    convenience init(at address: SocketAddress, limits: PortLimits = PortLimits()) throws {
        try self.init(limits) { handler in try Listener(address, handler: handler, acceptErrors: Self.retry) }
    }

    /// Takes ownership of a listening socket.
    convenience init(_ descriptor: FileDescriptor) throws {
        try self.init(PortLimits()) { handler in
            try Listener(descriptor: descriptor, handler: handler, acceptErrors: Self.retry)
        }
    }

    /// A port has no means to report a fault. The listener tries again by itself, and senders wait meanwhile.
    private static func retry(_ listener: Listener, _ error: IOError) {}

    private init(
        _ limits: PortLimits,
        _ listen: @escaping @Sendable (@escaping (Listener, Connection) -> Void) throws -> Listener
    ) throws {
        loop = try ResidentThread.ports.runLoop()
        queue = PortQueue(byteLimit: limits.byteCount)
        let server = LoopOwned(PortServer(loop, queue, limits), on: loop)
        self.server = server
        (address, descriptor) = try loop.performAndWait {
            let listener = try listen { _, connection in server.value.accept(connection) }
            try server.value.open(listener)
            return (listener.localAddress, listener.descriptor?.rawValue ?? -1)
        }
    }

    deinit { close() }

    /// Sets a handler that is called, on any thread, when a message has arrived.
    func setMessageHandler(_ handler: @escaping @Sendable () -> Void) { queue.setMessageHandler(handler) }

    var hasMessages: Bool { !queue.isEmpty }

    /// Removes and returns the first message.
    func takeMessage() -> ReceivedMessage? {
        let (message, hasRoomAgain) = queue.take()
        if hasRoomAgain { loop.perform { [server] in server.value.resumeReading() } }
        return message
    }

    /// Closes the sockets and discards the messages that have not been taken.
    func close() {
        guard queue.close() else { return }
        loop.performAndWait { [server] in server.value.close() }
    }
}

extension ResidentThread {
    /// The thread that serves the sockets of all ports. It calls no delegates.
    fileprivate static let ports = ResidentThread(name: "reactor.ports")
}

// MARK: - Sockets

/// The sockets of a local port: its listener and the accepted connections. Used only on the loop's thread.
private final class PortServer {
    let loop: RunLoop
    let queue: PortQueue
    let limits: PortLimits
    private var listener: Listener?
    private var isAccepting = false
    private var connections: [ObjectIdentifier: PortConnection] = [:]
    /// The connections whose next message has no room yet, in order.
    private var waiting: [PortRoom.Kind: [PortConnection]] = [:]
    private var messageCount = 0

    init(_ loop: RunLoop, _ queue: PortQueue, _ limits: PortLimits) {
        (self.loop, self.queue, self.limits) = (loop, queue, limits)
    }

    /// Begins to accept connections.
    func open(_ listener: Listener) throws(Errno) {
        do throws(Errno) { try loop.register(listener, forMode: .common) } catch {
            listener.close()
            throw error
        }
        self.listener = listener
        isAccepting = true
    }

    func accept(_ connection: Connection) {
        let connection = PortConnection(connection, self)
        connections[ObjectIdentifier(connection)] = connection
        connection.open(on: loop)
        limitConnections()
    }

    /// Removes a closed connection, and gives its room to others.
    func remove(_ connection: PortConnection) {
        guard connections.removeValue(forKey: ObjectIdentifier(connection)) != nil else { return }
        for kind in waiting.keys { waiting[kind]?.removeAll { $0 === connection } }
        queue.release(connection.reservation)
        resumeReading()
        limitConnections()
    }

    /// Reserves room for the message that begins on `connection`. Returns false if the connection has to wait:
    /// the server resumes it.
    func reserve(_ byteCount: Int, for connection: PortConnection) -> Bool {
        let kind = queue.kind(of: byteCount)
        if waiting[kind, default: []].isEmpty, queue.reserve(byteCount) { return true }
        waiting[kind, default: []].append(connection)
        return false
    }

    /// Resumes waiting connections while there is room. Those of a kind are resumed in order, so that the longest
    /// message gets its turn.
    func resumeReading() {
        for kind in PortRoom.Kind.allCases {
            while let connection = waiting[kind]?.first, queue.reserve(connection.neededByteCount) {
                waiting[kind]?.removeFirst()
                connection.resumeReading()
            }
        }
    }

    /// Adds a message of `connection` to the queue.
    func append(_ message: ReceivedMessage, from connection: PortConnection) {
        queue.append(message)
        messageCount += 1
        connection.lastMessage = messageCount
        if !isAccepting { limitConnections() }
    }

    /// Closes the connection that has been idle longest if there is one more than allowed, and accepts others while there
    /// are fewer, or one that could be closed.
    private func limitConnections() {
        if connections.count > limits.connectionCount { longestIdle?.close() }
        let hasRoom =
            connections.count < limits.connectionCount
            || connections.count == limits.connectionCount && longestIdle != nil
        guard let listener, isAccepting != hasRoom else { return }
        if isAccepting {
            loop.remove(listener, forMode: .common)
            isAccepting = false
        } else {
            // Without memory to register the listener, the next connection that closes tries again.
            isAccepting = (try? loop.add(listener, forMode: .common)) != nil
        }
    }

    private var longestIdle: PortConnection? {
        // The last sender may have more to send.
        let idle = connections.values.filter { $0.lastMessage < messageCount && $0.isIdle }
        return idle.min { $0.lastMessage < $1.lastMessage }
    }

    func close() {
        listener.take()?.close()
        for connection in connections.values { connection.close() }
    }
}

/// An accepted connection of a local port. Used only on the thread of its server's loop.
private final class PortConnection: StreamDelegate {
    /// How much is read before other connections have their turn.
    private static let shareOfTurn = 65_536

    private let input: InputStream
    private let output: OutputStream
    private let peer: SocketAddress
    /// Retains this connection until it is closed.
    private let server: PortServer
    private var decoder = PortFrameDecoder()
    /// The bytes reserved in the port's queue for the message that is arriving; 0 for none.
    private(set) var reservation = 0
    private var isWaiting = false
    /// The number of the last message, 0 before the first.
    var lastMessage = 0
    /// Closes the connection, unless the message's next megabyte arrives first.
    private var timer: Timer?
    private var awaitedMegabyte: Int?

    init(_ connection: Connection, _ server: PortServer) {
        (input, output) = connection.streams
        peer = connection.peerAddress ?? .unixUnnamed
        self.server = server
    }

    /// Whether the peer is between messages.
    var isIdle: Bool { lastMessage > 0 && decoder.byteCount == 0 && !input.hasBytesAvailable }

    /// The room in the port's queue for the message that is arriving; 0 before its length is known.
    var neededByteCount: Int { decoder.length.map(PortQueue.byteCount) ?? 0 }

    func open(on loop: RunLoop) {
        input.delegate = self
        input.schedule(in: loop, forMode: .common)
        input.open()
        watchProgress()
    }

    func close() {
        setTimer(forMegabyte: nil)
        input.close()
        output.close()
        server.remove(self)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable: read()
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    // MARK: Reading

    private func read() {
        do throws(PortFrame.ParseError) {
            var share = Self.shareOfTurn
            while share > 0, try hasRoom(),
                let chunk = input.readIfReady(upTo: min(decoder.room, share)), !chunk.isEmpty
            {
                share -= chunk.count
                if let bytes = decoder.append(chunk) { try receive(bytes) }
            }
            watchProgress()
        } catch {
            close()
        }
    }

    /// Whether the port has room for the message that is arriving. If not, the server resumes this connection.
    private func hasRoom() throws(PortFrame.ParseError) -> Bool {
        try decoder.parsePrefix()
        let count = neededByteCount
        guard !isWaiting, reservation < count else { return !isWaiting }
        isWaiting = !server.reserve(count, for: self)
        if !isWaiting { reservation = count }
        return !isWaiting
    }

    /// Called when ``neededByteCount`` bytes have been reserved.
    func resumeReading() {
        isWaiting = false
        reservation = neededByteCount
        read()
    }

    private func receive(_ bytes: [UInt8]) throws(PortFrame.ParseError) {
        setTimer(forMegabyte: nil)
        let message = try ReceivedMessage(bytes, from: peer)
        reservation = 0
        server.append(message, from: self)
    }

    // MARK: Waiting for the peer

    /// Limits the time for the first message, for the rest of a message that has begun, and for each megabyte of it.
    private func watchProgress() {
        let isExpecting = !isWaiting && (lastMessage == 0 || decoder.byteCount > 0)
        setTimer(forMegabyte: isExpecting ? decoder.byteCount >> 20 : nil)
    }

    private func setTimer(forMegabyte megabyte: Int?) {
        guard megabyte != awaitedMegabyte else { return }
        awaitedMegabyte = megabyte
        timer.take()?.invalidate()
        guard megabyte != nil else { return }
        timer = server.loop.perform(after: server.limits.messageTimeout, inModes: [.common]) { [weak self] in
            self?.close()
        }
    }
}
