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
