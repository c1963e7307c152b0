import Synchronization

/// A lookup whose answer may come on any thread.
final class ResolverRequest: Sendable {
    typealias Answer = Result<[SocketAddress], ResolverError>

    /// In a box of its own, as a ``Callback`` is.
    private struct Completion: Sendable {
        let closure: @Sendable (Answer) -> Void
    }

    let query: ResolverQuery
    /// Nil once it has been called, or will not be.
    private let completion: Mutex<Completion?>

    init(_ query: ResolverQuery, completion: @escaping @Sendable (Answer) -> Void) {
        self.query = query
        self.completion = Mutex(Completion(closure: completion))
    }

    /// Asks, unless nobody wants to know any longer.
    func carryOut() {
        guard completion.withLock({ $0 != nil }) else { return }
        give(query.ask())
    }

    func give(_ answer: Answer) {
        let completion = completion.withLock { $0.take() }
        completion?.closure(answer)
    }

    /// Lets go of the completion. It is not called after this, though on another thread a call may be under way.
    func cancel() {
        let dropped = completion.withLock { $0.take() }
        withExtendedLifetime(dropped) {}
    }
}
