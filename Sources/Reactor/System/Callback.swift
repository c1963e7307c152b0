/// A closure that is stored behind a lock.
///
/// It is wrapped in a struct because the compiler adds a reabstraction thunk to a bare closure each time that the lock
/// writes it back, and every call then goes through all of them.
struct Callback: Sendable {
    private let closure: @Sendable () -> Void

    init(_ closure: @escaping @Sendable () -> Void) { self.closure = closure }

    func callAsFunction() { closure() }
}

/// A value that one thread passes on to another, which takes it out once.
package final class Transferred<Value>: Sendable {
    private let value: Mutex<Disconnected?>

    private struct Disconnected {
        let value: Value
    }

    package init(_ value: sending Value) { self.value = Mutex(Disconnected(value: value)) }

    /// Whether the value is still to be taken.
    package var isWaiting: Bool { value.withLock { $0 != nil } }

    /// The value; nil if it has been taken before.
    package func take() -> sending Value? {
        value.withLock { content in
            let taken = content
            content = nil
            return taken
        }?.value
    }
}
