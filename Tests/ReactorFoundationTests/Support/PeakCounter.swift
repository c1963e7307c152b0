import ReactorFoundation

/// A counter that any thread may change, and that records its highest value.
final class PeakCounter: Sendable {
    private let stored = Mutex((current: 0, peak: 0))

    var peak: Int { stored.withLock { $0.peak } }

    func add(_ number: Int) {
        stored.withLock { stored in
            stored.current += number
            stored.peak = max(stored.peak, stored.current)
        }
    }
}
