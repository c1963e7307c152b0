import Synchronization

/// A value that threads wait for and another gives, once.
package final class Answer<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)
    private let given = Condition()

    package init() {}

    package func give(_ value: Value) {
        self.value.withLock { $0 = value }
        given.announce()
    }

    package func wait() -> Value {
        while true {
            let generation = given.generation
            if let value = value.withLock({ $0 }) { return value }
            given.wait(after: generation)
        }
    }
}
