import SystemPackage

// Tasks that wait, one at a time, for a descriptor that another object owns.
//
// The kernel watches the descriptor only while a task waits. A task that is cancelled, or whose deadline
// passes, takes nothing with it.

extension EventSubscription {
    /// Whether ``wait(until:)`` throws, now or once the loop has released the descriptor.
    var endsWaits: Bool { signal.isEnding || signal.isOver }

    /// The first element that `take` returns, which this calls at once and each time that the descriptor may be ready.
    ///
    /// - Throws: As ``wait(until:)`` or `take` does.
    nonisolated(nonsending) func next<Element: Sendable>(
        until deadline: Deadline?, _ take: () throws(Errno) -> Element?
    ) async throws(Errno) -> Element {
        if Task.isCancelled { throw .canceled }
        while true {
            if !endsWaits, let element = try take() { return element }
            try await wait(until: deadline)
        }
    }

    /// Waits until the descriptor is ready. May return early.
    ///
    /// - Throws: `Errno.canceled`; `Errno.timedOut`; what epoll_ctl(2) does; `Errno.badFileDescriptor` once
    ///   the subscription or the loop's thread has ended.
    nonisolated(nonsending) func wait(until deadline: Deadline?) async throws(Errno) {
        guard prepareToWait() else { throw endReason }
        try await suspend(at: signal.gate, until: deadline)
    }

    /// Waits until `date`, whether the descriptor is ready or not; throws as ``wait(until:)`` if `deadline`
    /// comes first.
    nonisolated(nonsending) func pause(until date: Deadline, deadline: Deadline?) async throws(Errno) {
        while date > .now {
            if signal.isOver { throw endReason }
            if let deadline, deadline <= .now { throw .timedOut }
            try await suspend(at: signal.gate, until: deadline.map { min($0, date) } ?? date)
        }
    }

    /// Why nothing can be awaited any more.
    private var endReason: Errno { signal.takeFailure() ?? .badFileDescriptor }

    /// Waits at `gate` until it is opened, or until `deadline`.
    nonisolated(nonsending) func suspend(at gate: Gate, until deadline: Deadline?) async throws(Errno) {
        if Task.isCancelled { throw .canceled }
        guard let deadline else { return await gate.wait(isolation: #isolation) }
        guard deadline > .now else { throw .timedOut }
        let timer = GateTimer(deadline, on: loop, inModes: gate.executor.modes) { gate.open() }
        await gate.wait(isolation: #isolation)
        withExtendedLifetime(timer) {}
    }
}

extension Duration? {
    /// The deadline that is so far from now.
    var deadline: Deadline? { map { .now + $0 } }
}
