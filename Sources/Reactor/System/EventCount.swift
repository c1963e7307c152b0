import CReactorLinux

/// Lets threads look, and wait for changes that other threads announce. A change after the look ends the wait.
@safe
final class EventCount: Sendable {
    /// `nonisolated(unsafe)`: it is set once, its memory lives as long as this object, and the C functions access it
    /// atomically.
    @safe private nonisolated(unsafe) let count: OpaquePointer

    init() {
        unsafe count = reactor_event_count_make()
    }

    deinit { unsafe reactor_event_count_free(count) }

    /// Announces a change, and wakes all threads that wait.
    func broadcast() { reactor_event_count_broadcast(count) }

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
            let generation = reactor_event_count_generation(count)
            if let result = look() { return result }
            let hasChanged = reactor_event_count_wait(count, generation, deadline.kernelNanoseconds)
            if !hasChanged { return nil }
        }
    }
}
