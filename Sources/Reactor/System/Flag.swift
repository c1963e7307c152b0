public import Synchronization

/// Something that one thread says, once, and others look at often.
@usableFromInline
final class Flag: Sendable {
    @usableFromInline let raised = Atomic(false)

    @inlinable var isRaised: Bool { raised.load(ordering: .relaxed) }

    init() {}

    func raise() { raised.store(true, ordering: .relaxed) }
}
