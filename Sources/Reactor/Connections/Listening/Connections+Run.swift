import Glibc
import Synchronization
import SystemPackage

extension Listener {
    /// Serves each connection to `address` in a child task, until the calling task is cancelled.
    ///
    /// `body` does not inherit the caller's isolation, as ``Connections/run(security:limit:limitPerPeer:connectionErrors:_:)``
    /// says.
    ///
    /// ```swift
    /// try await Listener.run(at: .ipv6Any(port: 7007)) { connection in
    ///     for try await chunk in connection.chunks() { try await connection.write(chunk) }
    /// }
    /// ```
    ///
    /// Make ``Connections`` to learn the port that the kernel has chosen, to close or to drain them.
    ///
    /// - Parameters:
    ///   - address: As in ``init(_:options:security:handler:acceptErrors:)``.
    ///   - options: Options to set before listening.
    ///   - security: As in ``Connections/run(security:limit:limitPerPeer:connectionErrors:_:)``.
    ///   - limit: As in ``Connections/run(security:limit:limitPerPeer:connectionErrors:_:)``.
    ///   - limitPerPeer: As there.
    ///   - loop: The loop that runs the tasks: that of the calling task unless another is named, or the main loop if that task
    ///     is on none.
    ///   - acceptErrors: Called with the reason when accepting backs off, at most once a second.
    ///   - connectionErrors: As in ``Connections/run(security:limit:limitPerPeer:connectionErrors:_:)``.
    ///   - body: Serves a connection, which is open.
    /// - Throws: ``IOError`` if the socket cannot listen; `CancellationError`.
    nonisolated(nonsending) public static func run(
        at address: SocketAddress, options: Options = Options(), security: Connection.Security? = nil,
        limit: Int = .max, limitPerPeer: Int = .max, on loop: RunLoop? = nil,
        acceptErrors: @escaping @Sendable (IOError) -> Void = { _ in },
        connectionErrors: @escaping @Sendable (Connection, any Error) -> Void = { _, _ in },
        _ body: @escaping @Sendable (Connection) async throws -> Void
    ) async throws {
        let place: RunLoop
        do throws(Errno) {
            place = if let loop { loop } else { try RunLoop.place(of: #isolation, orOn: .main).loop }
        } catch {
            throw CancellationError()
        }
        let connections = try place.connections(at: address, options: options, acceptErrors: acceptErrors)
        defer { connections.close() }
        try await connections.run(
            security: security, limit: limit, limitPerPeer: limitPerPeer, connectionErrors: connectionErrors,
            body)
    }
}

extension Listener.Connections {
    /// Serves each connection in a child task, which prefers the loop's thread, until these connections are closed or drained.
    ///
    /// A connection is closed when its task returns or throws; what was written is still sent. An error of `body` ends its
    /// connection and nothing else. If the calling task is cancelled, no further connection is accepted, the child tasks are
    /// cancelled, and this returns when they have. When the task's ``GracefulShutdown`` begins, the connections are drained. A
    /// connection that fails before it is open, as in a handshake, does not reach `body`.
    ///
    /// `body` does not inherit the caller's isolation: the child tasks prefer the loop of these connections, and a closure that
    /// inherits would move every connection to the caller's actor, such as the main actor. Where that is wanted, isolate it:
    /// `{ @MainActor connection in … }`.
    ///
    /// - Parameters:
    ///   - security: What protects the bytes, such as ReactorTLS's `.tls(.server(identity))`; nil for plain text. The task
    ///     of the connection makes the handshake.
    ///   - limit: How many connections there are at once. The others wait in the kernel's backlog. A connection counts until
    ///     its task has ended and its descriptor is closed, which may be later: see ``ConnectionOptions/closeTimeout``.
    ///   - limitPerPeer: How many of them may come from one IPv4 address, also mapped into IPv6, or from one IPv6 network of
    ///     64 bits. Further ones are reset.
    ///   - connectionErrors: Called with a connection that has failed before it was open, whose `body` has thrown, or whose
    ///     peer has too many, and the error: in the last case ``IOError`` with `Errno(rawValue: EUSERS)`. Not with a
    ///     `CancellationError`. In debug mode (``LoopDiagnostics``) an error of the first two kinds is also reported.
    ///   - body: Serves a connection, which is open.
    /// - Throws: ``IOError`` if the socket fails; `CancellationError`.
    /// - Precondition: No other task accepts; the limits are positive; `security` is a server's.
    nonisolated(nonsending) public func run(
        security: Connection.Security? = nil, limit: Int = .max, limitPerPeer: Int = .max,
        connectionErrors: @escaping @Sendable (Connection, any Error) -> Void = { _, _ in },
        _ body: @escaping @Sendable (Connection) async throws -> Void
    ) async throws {
        require(limit > 0 && limitPerPeer > 0, "Connections.run needs a limit of at least one connection.")
        security?.requireServer("Connections.run")
        let places = ConnectionPlaces(limit: limit, limitPerPeer: limitPerPeer, arrivals.state)
        let observation = GracefulShutdown.current?.observe { self.drain() }
        defer { withExtendedLifetime(observation) {} }
        try await withTaskExecutorPreference(executor) {
            try await withThrowingDiscardingTaskGroup { group in
                for try await connection in self {
                    start(connection, places, security, in: &group, connectionErrors, body)
                    await places.waitForRoom()
                }
            }
        }
        try Task.checkCancellation()
    }

    /// Starts the task of a connection. A function of its own, so that the task that waits for room retains no place.
    @inline(never)
    private func start(
        _ connection: Connection, _ places: ConnectionPlaces, _ security: Connection.Security?,
        in group: inout ThrowingDiscardingTaskGroup<any Error>,
        _ connectionErrors: @escaping @Sendable (Connection, any Error) -> Void,
        _ body: @escaping @Sendable (Connection) async throws -> Void
    ) {
        guard let place = places.take(for: connection) else {
            let peer = connection.peerAddress.map { "\($0)" } ?? connection.socket.subject
            return connectionErrors(connection, IOError(.accept, peer, Errno(rawValue: EUSERS)))
        }
        guard connection.protect(by: security) else { return connection.close() }
        active.add(1, ordering: .relaxed)
        group.addTask { [self] in
            await serve(connection, connectionErrors, body)
            active.subtract(1, ordering: .relaxed)
            withExtendedLifetime(place) {}
        }
    }
}

private nonisolated func serve(
    _ connection: Connection, _ connectionErrors: @Sendable (Connection, any Error) -> Void,
    _ body: @Sendable (Connection) async throws -> Void
) async {
    defer { connection.close() }
    do {
        try await connection.open()
        try await body(connection)
    } catch is CancellationError {
    } catch {
        if LoopDiagnostics.isReporting {
            LoopDiagnostics.report(.connectionError, "The task of a \(connection) has failed: \(error).")
        }
        connectionErrors(connection, error)
    }
}

/// How many connections there are, in all and of each peer.
private final class ConnectionPlaces: Sendable {
    /// Is taken until the last reference is released: by the connection's task, and by its descriptors when they are closed.
    final class Place: Sendable {
        private let places: ConnectionPlaces?
        private let peer: ClientNetwork
        private let process = ProcessIdentity.current

        fileprivate init(_ peer: ClientNetwork, in places: ConnectionPlaces?) {
            (self.peer, self.places) = (peer, places)
        }

        // A child of fork(2) accepts nothing, and another thread of its parent may have held the lock.
        deinit { if process.isCurrent { places?.end(peer) } }
    }

    private struct State {
        var count = 0
        var counts: [ClientNetwork: Int] = [:]
        /// Whether the task that accepts waits for room.
        var isAwaited = false
    }

    private let limit: Int
    private let limitPerPeer: Int
    /// What the task that accepts waits for.
    private let arrivals: SubscriptionState
    private let state = Mutex(State())
    /// That of all connections, if there is no limit.
    private let unlimited: Place?

    init(limit: Int, limitPerPeer: Int, _ arrivals: SubscriptionState) {
        (self.limit, self.limitPerPeer, self.arrivals) = (limit, limitPerPeer, arrivals)
        unlimited = limit == .max && limitPerPeer == .max ? Place(.local, in: nil) : nil
    }

    /// Counts `connection`; resets it, and returns nil, if its peer has too many.
    func take(for connection: Connection) -> Place? {
        if let unlimited { return unlimited }
        let peer = limitPerPeer < .max ? ClientNetwork(connection.peerAddress) : .local
        let isAccepted = state.withLock { state in
            if peer != .local {
                guard state.counts[peer, default: 0] < limitPerPeer else { return false }
                state.counts[peer, default: 0] += 1
            }
            state.count += 1
            return true
        }
        guard isAccepted else {
            connection.reset()
            return nil
        }
        let place = Place(peer, in: self)
        connection.socket.shared.keepUntilClosed(place)
        return place
    }

    private func end(_ peer: ClientNetwork) {
        let isAwaited = state.withLock { state in
            state.count -= 1
            if let count = state.counts[peer] { state.counts[peer] = count > 1 ? count - 1 : nil }
            return exchange(&state.isAwaited, with: false)
        }
        if isAwaited { arrivals.parker.unparkLater() }
    }

    /// Waits until there may be another connection, the task is cancelled, or no connection is accepted any more.
    nonisolated(nonsending) func waitForRoom() async {
        while !hasRoom(), !Task.isCancelled, !arrivals.isOver {
            await arrivals.parker.park(isolation: #isolation)
        }
    }

    /// If not, the end of a connection ends the wait of the task.
    private func hasRoom() -> Bool {
        state.withLock { state in
            state.isAwaited = state.count >= limit
            return !state.isAwaited
        }
    }
}

/// The clients whose connections are counted together.
///
/// A client of IPv6 has a network of 64 bits (RFC 4291), and as many addresses in it as it likes.
package enum ClientNetwork: Hashable {
    case ipv4(UInt32)
    /// The first 64 bits, and the interface of an address that only that has.
    case ipv6(UInt64, scope: UInt32)
    /// Of the same machine, or not limited.
    case local

    package init(_ address: SocketAddress?) {
        if let address = address?.embeddedIPv4 {
            self = .ipv4(address)
        } else if let address, let number = address.ipv6 {
            self = .ipv6(UInt64(number >> 64), scope: address.scope ?? 0)
        } else {
            self = .local
        }
    }
}
