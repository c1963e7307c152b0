import Synchronization
import SystemPackage

/// Lets tasks wait, one at a time, for a descriptor that another object owns.
///
/// The kernel watches the descriptor only while a task waits. A task that is cancelled, or whose deadline
/// passes, takes nothing with it.
final class DescriptorWaits: Sendable {
    let subscription: EventSubscription
    private let loop: RunLoop
    private let modes: ModeSet
    private let release: @Sendable () -> Void
    private let closing = Atomic(false)

    /// - Parameter release: Called once the loop does not watch the descriptor any more, after ``end()``.
    init(
        for interest: Readiness, of descriptor: FileDescriptor, on loop: RunLoop, in modes: [RunLoop.Mode],
        release: @escaping @Sendable () -> Void
    ) {
        (self.loop, self.modes, self.release) = (loop, ModeSet(modes), release)
        subscription = EventSubscription(
            on: loop, in: modes, watching: descriptor, for: interest, ended: release)
    }

    /// Ends the waits, and releases the descriptor.
    func end() {
        closing.store(true, ordering: .releasing)
        if !subscription.end() { release() }
    }

    /// Whether ``end()`` was called: then the descriptor must not be used.
    var isClosing: Bool { closing.load(ordering: .acquiring) }

    /// Whether ``wait(until:)`` throws, now or once the loop has released the descriptor.
    var isEnding: Bool { isClosing || subscription.signal.isOver }

    /// Waits until the descriptor is ready. May return early.
    ///
    /// - Throws: `Errno.canceled`; `Errno.timedOut`; what epoll_ctl(2) does; `Errno.badFileDescriptor` once
    ///   the waits or the loop's thread have ended.
    nonisolated(nonsending) func wait(until deadline: Deadline?) async throws(Errno) {
        guard subscription.prepareToWait() else { throw endReason }
        try await suspend(until: deadline)
    }

    /// Waits until `date`, whether the descriptor is ready or not; throws as ``wait(until:)`` if `deadline`
    /// comes first.
    nonisolated(nonsending) func pause(until date: Deadline, deadline: Deadline?) async throws(Errno) {
        while date > .now {
            if subscription.signal.isOver { throw endReason }
            if let deadline, deadline <= .now { throw .timedOut }
            try await suspend(until: deadline.map { min($0, date) } ?? date)
        }
    }

    /// Why nothing can be awaited any more.
    private var endReason: Errno { subscription.signal.takeFailure() ?? .badFileDescriptor }

    nonisolated(nonsending) private func suspend(until deadline: Deadline?) async throws(Errno) {
        if Task.isCancelled { throw .canceled }
        let gate = subscription.signal.gate
        guard let deadline else { return await gate.wait(isolation: #isolation) }
        guard deadline > .now else { throw .timedOut }
        let timer = GateTimer(deadline, on: loop, in: modes) { gate.open() }
        await gate.wait(isolation: #isolation)
        withExtendedLifetime(timer) {}
    }
}

extension Duration? {
    /// The deadline that is so far from now.
    var deadline: Deadline? { map { .now + $0 } }
}
