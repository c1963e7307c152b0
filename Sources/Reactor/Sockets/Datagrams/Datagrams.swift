import Glibc
public import SystemPackage

extension RunLoop {
    /// Opens a socket that receives what is sent to `address`, each datagram when it is awaited.
    ///
    /// ```swift
    /// let datagrams = try loop.datagrams(boundTo: .ipv6Any(port: 7))
    /// for try await datagram in datagrams {
    ///     guard let sender = datagram.metadata.sender else { continue }
    ///     try await datagrams.send(datagram.bytes, to: sender)
    /// }
    /// ```
    ///
    /// From any thread.
    ///
    /// - Parameters:
    ///   - address: As in ``DatagramSocket/init(boundTo:options:receive:events:)``.
    ///   - options: Options to set before binding.
    ///   - modes: Where the loop waits for datagrams: the common modes unless others are named.
    /// - Returns: The datagrams.
    /// - Throws: As ``DatagramSocket/init(boundTo:options:receive:events:)``.
    public func datagrams(
        boundTo address: SocketAddress, options: DatagramSocket.Options = DatagramSocket.Options(),
        inModes modes: [Mode] = [.common]
    ) throws(IOError) -> DatagramSocket.Datagrams {
        let socket = try DatagramSocket(
            boundTo: address, options: options, receive: { _, _, _ in }, events: { _, _ in })
        return try DatagramSocket.Datagrams(socket, self, modes)
    }

    /// Opens a socket that sends to `peer` and receives only from there, each datagram when it is awaited.
    ///
    /// The parameters are those of ``DatagramSocket/init(connectedTo:boundTo:options:receive:events:)``.
    public func datagrams(
        connectedTo peer: SocketAddress, boundTo address: SocketAddress? = nil,
        options: DatagramSocket.Options = DatagramSocket.Options(), inModes modes: [Mode] = [.common]
    ) throws(IOError) -> DatagramSocket.Datagrams {
        let socket = try DatagramSocket(
            connectedTo: peer, boundTo: address, options: options, receive: { _, _, _ in },
            events: { _, _ in })
        return try DatagramSocket.Datagrams(socket, self, modes)
    }
}

extension DatagramSocket {
    /// The datagrams of a socket, for `for await`: the asynchronous form of ``DatagramSocket``.
    ///
    /// Datagrams are received when a task asks for one, on the task's thread: until then they wait in the kernel's buffer, and
    /// what does not fit is lost. Up to sixteen are received with one system call; those that a task does not take stay for the
    /// next. Any number of tasks may send.
    ///
    /// One task receives at a time; a second one traps. The iteration ends when ``close()`` is called, and with the loop's
    /// thread. It throws `CancellationError` when its task is cancelled, and an error that the kernel has reported; the socket
    /// stays open, and another iteration may continue. The socket is closed when the last reference to this object is released.
    public final class Datagrams: AsyncSequence, Sendable {
        /// A datagram with its bytes.
        public typealias Element = Datagram

        /// The socket's own address, as completed by the kernel.
        public let localAddress: SocketAddress
        /// See ``DatagramSocket/subject``.
        private let subject: String
        private let socket: UnscheduledSocket
        private let arrivals: EventSubscription
        private let modes: [RunLoop.Mode]

        fileprivate init(
            _ socket: sending DatagramSocket, _ loop: RunLoop, _ modes: [RunLoop.Mode]
        ) throws(IOError) {
            let descriptor = FileDescriptor(rawValue: socket.number)
            localAddress = try attempt(.bind, descriptorName(descriptor.rawValue)) { () throws(Errno) in
                try SocketAddress.local(of: descriptor)
            }
            subject = socket.subject
            let unscheduled = UnscheduledSocket(socket)
            (self.socket, self.modes) = (unscheduled, modes)
            arrivals = EventSubscription(
                on: loop, inModes: modes, watching: descriptor, for: .readable,
                ended: { unscheduled.endWatch() })
        }

        deinit { close() }

        /// Ends the iteration and closes the socket. Any thread: the loop closes it in its next pass, and ends the iteration
        /// then. No datagram is received or sent after the call.
        public func close() {
            for room in socket.refuse() { room.end() }
            arrivals.end()
        }

        // MARK: Sending

        /// Sends a datagram to `address`, and waits while there is no room for it.
        ///
        /// - Parameters:
        ///   - bytes: The datagram.
        ///   - address: The receiver; nil for the one that the socket is connected to.
        ///   - descriptors: Open descriptors to send along over a Unix-domain socket; see
        ///     ``DatagramSocket/send(_:to:descriptors:)-([UInt8],_,_)``. They stay the caller's, and open until this returns.
        ///   - timeout: How long to wait for room; nil for no limit.
        /// - Throws: ``IOError`` with an error of ``DatagramSocket/send(_:to:descriptors:)-([UInt8],_,_)``, or with
        ///   ``IOError/Reason/waitTimedOut``; `CancellationError`. Then the datagram was not sent.
        nonisolated(nonsending) public func send(
            _ bytes: [UInt8], to address: SocketAddress? = nil, descriptors: [FileDescriptor] = [],
            timeout: Duration? = nil
        ) async throws {
            let deadline = timeout.deadline(on: arrivals.loop)
            do throws(Errno) {
                while try !socket.send(bytes, to: address, descriptors) {
                    try await waitForRoom(until: deadline)
                }
            } catch .canceled {
                throw CancellationError()
            } catch {
                throw IOError(.send, address.map { "\($0)" } ?? subject, .endOfWait(error))
            }
        }

        /// Sends a text in UTF-8; otherwise as the method that takes bytes.
        nonisolated(nonsending) public func send(
            _ text: String, to address: SocketAddress? = nil, timeout: Duration? = nil
        ) async throws {
            try await send(Array(text.utf8), to: address, timeout: timeout)
        }

        nonisolated(nonsending) private func waitForRoom(until deadline: Deadline?) async throws(Errno) {
            if socket.isWritable {
                // A Unix-domain receiver is full, which the kernel does not report.
                if let deadline, deadline <= arrivals.loop.now { throw .timedOut }
                // Long enough not to spin, and short beside the time that a full receiver takes.
                try await DispatchWorkers.sleep(for: .milliseconds(1))
                return
            }
            let room = try socket.watch { [socket] descriptor in
                EventSubscription(
                    on: arrivals.loop, inModes: modes, watching: descriptor, for: .writable,
                    ended: { socket.endWatch() })
            }
            defer {
                room.end()
                socket.forget(room)
            }
            try await room.wait(until: deadline)
        }

        // MARK: Receiving

        /// Receives one datagram.
        ///
        /// - Parameter timeout: How long to wait for one; nil for no limit.
        /// - Throws: ``IOError`` with ``IOError/Reason/waitTimedOut``; with `Errno.badFileDescriptor` once the socket is closed
        ///   or the loop's thread has ended; with an error that the kernel has reported, such as `Errno.connectionRefused`,
        ///   after which the socket stays open. `CancellationError`.
        /// - Precondition: No other task receives.
        nonisolated(nonsending) public func receive(timeout: Duration? = nil) async throws -> Datagram {
            arrivals.state.claim()
            defer { arrivals.state.unclaim() }
            do throws(Errno) {
                return try await arrivals.next(until: timeout.deadline(on: arrivals.loop), socket.receive)
            } catch {
                throw failure(error)
            }
        }

        private func failure(_ error: Errno) -> any Error {
            error == .canceled ? CancellationError() : IOError(.receive, subject, .endOfWait(error))
        }

        /// Begins an iteration.
        ///
        /// - Precondition: No other is in progress.
        public func makeAsyncIterator() -> Iterator {
            Iterator(datagrams: self, claim: EventClaim(arrivals))
        }

        /// Receives one datagram after the other.
        public struct Iterator: AsyncIteratorProtocol, Sendable {
            fileprivate let datagrams: Datagrams
            fileprivate let claim: EventClaim

            /// The next datagram; nil once the socket is closed.
            nonisolated(nonsending) public func next() async throws -> Datagram? {
                guard !claim.isReleased else { return nil }
                do throws(Errno) {
                    return try await datagrams.arrivals.next(until: nil, datagrams.socket.receive)
                } catch {
                    claim.release()
                    if error == .badFileDescriptor { return nil }
                    throw datagrams.failure(error)
                }
            }

            /// The next datagram; nil once the socket is closed.
            public func next(isolation actor: isolated (any Actor)?) async throws -> Datagram? {
                try await next()
            }
        }
    }
}

/// A socket in no loop, which any thread uses, one at a time.
private final class UnscheduledSocket: Sendable {
    private struct State {
        let socket: DatagramSocket
        /// Those that wait for room. Nil once no datagram is sent or received any more: the socket may still be open.
        var rooms: [EventSubscription]? = []
        /// How many subscriptions watch the descriptor: the last one closes it.
        var watches = 1
    }

    private let state: Mutex<State>

    init(_ socket: sending DatagramSocket) { state = Mutex(State(socket: socket)) }

    /// Nil if no datagram is pending, or may be received any more.
    func receive() throws(Errno) -> DatagramSocket.Datagram? {
        try state.withLock { (state) throws(Errno) in
            state.rooms == nil ? nil : try state.socket.receiveOne()
        }
    }

    /// False if there is no room.
    func send(
        _ bytes: [UInt8], to address: SocketAddress?, _ descriptors: [FileDescriptor]
    ) throws(Errno) -> Bool {
        try state.withLock { (state) throws(Errno) in
            if state.rooms == nil { throw .badFileDescriptor }
            do throws(Errno) {
                return try bytes.withBytes { (bytes) throws(Errno) in
                    try state.socket.transmit(bytes, to: address, descriptors)
                }
            } catch .resourceTemporarilyUnavailable {
                return false
            }
        }
    }

    var isWritable: Bool { state.withLock { $0.socket.isWritable } }

    // MARK: Watching the descriptor

    func watch(_ makeRoom: (FileDescriptor) -> EventSubscription) throws(Errno) -> EventSubscription {
        let number = try state.withLock { (state) throws(Errno) in
            if state.rooms == nil { throw .badFileDescriptor }
            state.watches += 1
            return state.socket.number
        }
        let room = makeRoom(FileDescriptor(rawValue: number))
        let isRefusing = state.withLock { state in
            state.rooms?.append(room)
            return state.rooms == nil
        }
        if isRefusing { room.end() }
        return room
    }

    func forget(_ room: EventSubscription) { state.withLock { $0.rooms?.removeAll { $0 === room } } }

    /// Called when a subscription has ended.
    func endWatch() {
        state.withLock { state in
            state.watches -= 1
            if state.watches == 0 { state.socket.close() }
        }
    }

    /// Refuses to send and to receive. Returns the subscriptions that wait for room, for the caller to end.
    func refuse() -> [EventSubscription] { state.withLock { $0.rooms.take() ?? [] } }
}
