import Dispatch
import ReactorFoundation

/// What threads wait for, until it has happened a number of times.
final class Happening: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func happened() { semaphore.signal() }

    func wait(times: Int = 1) {
        for _ in 0..<times { semaphore.wait() }
    }
}

/// A number that threads add to, and the highest that it has been.
final class Count: Sendable {
    private let stored = Mutex((now: 0, highest: 0))

    var highest: Int { stored.withLock { $0.highest } }

    func add(_ number: Int) {
        stored.withLock { stored in
            stored.now += number
            stored.highest = max(stored.highest, stored.now)
        }
    }
}
