import Synchronization

/// A value that one thread sets, once, and other threads wait for.
package final class Promise<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let changed = EventCount()

    package init() {}

    /// Sets the value, unless it is set.
    package func set(_ value: Value) {
        self.value.withLock { if case .none = $0 { $0 = value } }
        changed.broadcast()
    }

    package func wait() -> Value { changed.wait { value.withLock { $0 } } }

    /// - Returns: Nil if the value has not been set by `deadline`.
    package func wait(until deadline: Deadline) -> Value? {
        changed.wait(until: deadline) { value.withLock { $0 } }
    }
}

/// A value that any thread sets, once, and tasks wait for.
package final class AsyncPromise<Value: Sendable>: Sendable {
    private enum State {
        case awaited([CheckedContinuation<Value, Never>])
        case known(Value)
    }

    private let state = Mutex(State.awaited([]))

    package init() {}

    /// Sets the value, unless it is set.
    package func set(_ value: Value) {
        let waiters = state.withLock { state -> [CheckedContinuation<Value, Never>] in
            guard case .awaited(let waiters) = state else { return [] }
            state = .known(value)
            return waiters
        }
        for waiter in waiters { waiter.resume(returning: value) }
    }

    nonisolated(nonsending) package func wait() async -> Value {
        await withCheckedContinuation { waiter in
            let value = state.withLock { state -> Value? in
                switch state {
                case .known(let value): return value
                case .awaited(let waiters):
                    state = .awaited(waiters + [waiter])
                    return nil
                }
            }
            if let value { waiter.resume(returning: value) }
        }
    }
}
