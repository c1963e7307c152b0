import CReactorLinux

/// Lets threads wait until what they look at may have changed.
///
/// Take the ``generation``, look, and if nothing has changed yet ``wait(after:)`` that generation: a change between the
/// look and the wait is not missed.
@safe
final class Condition: Sendable {
    /// `nonisolated(unsafe)`: it is set once, its memory lives as long as this object, and the C functions access it
    /// atomically.
    @safe private nonisolated(unsafe) let condition: OpaquePointer

    init() {
        unsafe condition = reactor_condition_make()
    }

    deinit { unsafe reactor_condition_free(condition) }

    /// How many changes have been announced, modulo 2³².
    var generation: UInt32 { reactor_condition_generation(condition) }

    /// Announces a change, and wakes all threads that wait.
    func broadcast() { reactor_condition_broadcast(condition) }

    /// Waits for a change after `generation`, until `deadline` at the latest.
    ///
    /// - Returns: False if the deadline has passed without a change.
    @discardableResult
    func wait(after generation: UInt32, until deadline: Deadline = .distantFuture) -> Bool {
        reactor_condition_wait(condition, generation, deadline.kernelNanoseconds)
    }
}
