import Glibc

extension RunLoop {
    /// Runs `body`; when one of `signals` arrives, lets it finish in `grace`, and cancels what is left then.
    ///
    /// ```swift
    /// try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { _ in
    ///     try await Listener.run(at: .ipv6Any(port: 7007)) { connection in
    ///         for try await chunk in connection.chunks() { try await connection.write(chunk) }
    ///     }
    /// }
    /// ```
    ///
    /// When the shutdown begins, each ``Listener/Connections/run(security:limit:limitPerPeer:connectionErrors:_:)`` and
    /// ``Listener/run(at:options:security:limit:limitPerPeer:on:acceptErrors:connectionErrors:_:)`` of the body drains: it
    /// accepts no connections but those in the backlog, and returns when they all have been served. Other code asks the
    /// ``GracefulShutdown`` that the body gets, or ``GracefulShutdown/current``. After the grace the body's task is cancelled,
    /// and with it its child tasks. Connections that end so are closed, which sends what was written. The
    /// shutdown does not know listeners and connections with delegates: the body drains them, waits for their end, and closes
    /// the rest when it is cancelled.
    ///
    /// The loop catches the signals, in the common modes, until it has served the first of them. Then their earlier actions are
    /// restored: a second signal, of any kind, does what it would have done without this call: it ends the process, unless that
    /// is process 1 of a container. While a callback keeps the loop busy, signals wait for it.
    ///
    /// A signal that begins it also reports ``ServiceManager/Notification/stopping`` to the service manager.
    ///
    /// Returns when the body has, and waits for child tasks that ignore their cancellation. An inner shutdown begins with the
    /// outer one. If the loop's thread ends, the signals are not caught any more, and the grace is over when the shutdown
    /// begins, as there is no clock for it.
    ///
    /// - Parameters:
    ///   - signals: The signals that begin the shutdown; none if only ``GracefulShutdown/begin()`` does.
    ///   - grace: How long the body may take after that, on the loop's clock. Docker kills a process after ten seconds: that
    ///     leaves five for output that is still being sent when the process exits.
    ///   - body: A child task, with the isolation of the calling code.
    /// - Returns: What `body` returns; nil if it throws `CancellationError` after the shutdown has begun.
    /// - Throws: What else `body` throws; ``IOError`` as ``signals(_:inModes:)``, and then the body is cancelled.
    /// - Precondition: `grace` is not negative.
    @discardableResult
    nonisolated(nonsending) public func withGracefulShutdown<Success: Sendable>(
        on signals: [Signal] = [.interrupt, .terminate], grace: Duration = .seconds(5),
        @_inheritActorContext _ body: @escaping @Sendable (GracefulShutdown) async throws -> Success
    ) async throws -> Success? {
        require(grace >= .zero, "A grace must not be negative: \(grace).")
        let (shutdown, outer) = (GracefulShutdown(), GracefulShutdown.current)
        let caught = CaughtSignals()
        let events = try self.events(of: Array(Set(signals)), inModes: [.common], subscribed: caught.add) {
            signal, count in
            let others = caught.stop()
            shutdown.begin()
            // Clients are served meanwhile: it does not wait for a manager.
            try? ServiceManager.send([.stopping], timeout: .zero)
            // A second one, which now has the action that it had before.
            if let second = count > 1 ? signal : others.first { kill(getpid(), second.rawValue) }
        }
        let observation = shutdown.observe {
            _ = caught.stop()
            events.end()
        }
        let outerObservation = outer?.observe { shutdown.begin() }
        defer {
            withExtendedLifetime(observation) {}
            withExtendedLifetime(outerObservation) {}
            _ = caught.stop()
            events.end()
        }
        return try await GracefulShutdown.$inherited.withValue(shutdown) {
            try await runBody(body, until: shutdown, events, grace)
        }
    }

    nonisolated(nonsending) private func runBody<Success: Sendable>(
        _ body: @escaping @Sendable (GracefulShutdown) async throws -> Success,
        until shutdown: GracefulShutdown, _ events: Events<Signal, any Error>, _ grace: Duration
    ) async throws -> Success? {
        do {
            return try await withTaskCancelled(
                when: { try await self.waitForEnd(of: shutdown, events, grace) }, { try await body(shutdown) }
            )
        } catch is CancellationError where shutdown.hasBegun && !Task.isCancelled {
            return nil
        }
    }

    /// Returns when the grace is over, or the task is cancelled because the body has ended.
    nonisolated(nonsending) private func waitForEnd(
        of shutdown: GracefulShutdown, _ events: Events<Signal, any Error>, _ grace: Duration
    ) async throws {
        do {
            for try await _ in events { break }
            try await shutdown.waitUntilBegun()
            try await clock().sleep(for: grace)
        } catch is CancellationError {}
    }
}

/// The subscriptions to the signals that begin a shutdown.
private final class CaughtSignals: Sendable {
    private let subscriptions = Mutex<[SignalSubscription]>([])

    func add(_ subscription: SignalSubscription) { subscriptions.withLock { $0.append(subscription) } }

    /// Restores the signals' earlier actions at once, on any thread.
    ///
    /// - Returns: The signals that were caught, and that the loop has not served.
    func stop() -> [Signal] {
        let stopped = subscriptions.withLock { exchange(&$0, with: []) }
        return stopped.filter { $0.stop() > 0 }.map { $0.signal }
    }
}
