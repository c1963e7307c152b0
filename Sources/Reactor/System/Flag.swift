public import Synchronization

/// A flag that is raised once, and that other threads read often.
@usableFromInline
final class Flag: Sendable {
    @usableFromInline let raised = Atomic(false)

    @inlinable var isRaised: Bool { raised.load(ordering: .relaxed) }

    init() {}

    func raise() { raised.store(true, ordering: .relaxed) }
}
