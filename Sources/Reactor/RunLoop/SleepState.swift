import Glibc
import Synchronization

/// Whether a loop sleeps or must make a pass, for the threads that wake it.
///
/// The handshake loses no wake-up: a thread that posts requests a pass and then looks whether the loop sleeps; the loop
/// announces that it sleeps and then looks whether a pass is requested.
struct SleepState: ~Copyable {
    /// Whether the loop must make one more pass before it sleeps.
    private let passRequested = Atomic(false)
    /// The event counter of the poller that the loop sleeps in; -1 while it does not.
    private let counter = Atomic<CInt>(-1)
    /// How many threads are about to write to the counter that they have taken.
    private let pendingWrites = Atomic(0)
    /// Whether this activation has consumed a request that may have been meant for an outer one.
    private let consumed = Atomic(false)

    // MARK: From any thread

    /// Requests a pass, and ends the loop's sleep. `noteWaker` is called if it sleeps.
    @inline(__always)
    func wakeUp(_ noteWaker: () -> Void) {
        requestPass()
        guard isAsleep else { return }
        pendingWrites.add(1, ordering: .sequentiallyConsistent)
        let counter = counter.exchange(-1, ordering: .sequentiallyConsistent)
        if counter >= 0 {
            noteWaker()
            addOne(toEventCounter: counter)
        }
        pendingWrites.subtract(1, ordering: .releasing)
    }

    /// An exchange rather than a store, so that ``beginPass()`` sees everything that was posted before.
    @inline(__always)
    func requestPass() { _ = passRequested.exchange(true, ordering: .sequentiallyConsistent) }

    @inline(__always)
    var isPassRequested: Bool { passRequested.load(ordering: .sequentiallyConsistent) }

    /// False once another thread has written the counter that the loop sleeps on, or is about to.
    @inline(__always)
    var isAsleep: Bool { counter.load(ordering: .sequentiallyConsistent) >= 0 }

    // MARK: From the loop's thread

    /// Begins a pass, which answers all requests for one so far: it sees everything that was posted before them.
    @inline(__always)
    func beginPass() {
        // Most passes find nothing, and a look is cheaper than an exchange.
        guard passRequested.load(ordering: .acquiring),
            passRequested.exchange(false, ordering: .sequentiallyConsistent)
        else { return }
        consumed.store(true, ordering: .relaxed)
    }

    /// Announces that the loop sleeps until `counter` is written, unless it has to make a pass.
    @inline(__always)
    func announce(_ counter: CInt) { self.counter.store(counter, ordering: .sequentiallyConsistent) }

    @inline(__always)
    func end() { counter.store(-1, ordering: .relaxed) }

    /// Begins an activation. Returns whether the outer one has consumed a request.
    func beginActivation() -> Bool { consumed.exchange(false, ordering: .relaxed) }

    /// Ends an activation. Returns whether it has consumed a request.
    func endActivation(outerHasConsumed: Bool) -> Bool {
        let hasConsumed = consumed.load(ordering: .relaxed)
        consumed.store(hasConsumed || outerHasConsumed, ordering: .relaxed)
        return hasConsumed
    }

    /// Waits for the threads that are writing to a counter that is about to be closed.
    func close() {
        announce(-1)
        while pendingWrites.load(ordering: .sequentiallyConsistent) > 0 { sched_yield() }
    }
}
