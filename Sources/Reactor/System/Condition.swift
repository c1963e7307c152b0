import CReactorLinux

/// Lets threads wait for changes that other threads announce.
@safe
final class Condition: Sendable {
    /// `nonisolated(unsafe)`: it is set once, its memory lives as long as this object, and the C functions access it
    /// atomically.
    @safe private nonisolated(unsafe) let condition: OpaquePointer

    init() {
        unsafe condition = reactor_condition_make()
    }

    deinit { unsafe reactor_condition_free(condition) }

    /// Announces a change, and wakes all threads that wait.
    func broadcast() { reactor_condition_broadcast(condition) }

    /// Waits until `look` returns a value. Calls it once, and again after each change.
    func wait<Result>(for look: () -> Result?) -> Result {
        while true {
            if let result = wait(until: .distantFuture, for: look) { return result }
        }
    }

    /// - Returns: Nil if `deadline` has passed without a value.
    func wait<Result>(until deadline: Deadline, for look: () -> Result?) -> Result? {
        while true {
            // Taken first, so that a change between the look and the wait is not missed.
            let generation = reactor_condition_generation(condition)
            if let result = look() { return result }
            let hasChanged = reactor_condition_wait(condition, generation, deadline.kernelNanoseconds)
            if !hasChanged { return nil }
        }
    }
}
