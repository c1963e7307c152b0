import Synchronization

/// A value that one thread sets, once, and other threads wait for.
package final class Promise<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let changed = Condition()

    package init() {}

    /// Sets the value, unless it is set.
    package func set(_ value: Value) {
        self.value.withLock { if case .none = $0 { $0 = value } }
        changed.broadcast()
    }

    package func wait() -> Value {
        while true {
            let generation = changed.generation
            if let value = value.withLock({ $0 }) { return value }
            changed.wait(after: generation)
        }
    }
}
