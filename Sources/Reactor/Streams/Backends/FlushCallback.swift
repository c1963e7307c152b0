/// Called once, when an output has sent all bytes or has failed, unless it is cancelled before.
final class FlushCallback: Sendable {
    private let callback: Mutex<Callback?>

    init(_ closure: @escaping @Sendable () -> Void) { callback = Mutex(Callback(closure)) }

    /// Whether it is still to be called.
    var isWaiting: Bool { callback.withLock { $0 != nil } }

    func callAsFunction() { take()?() }

    /// Releases the closure, which is not called any more.
    func cancel() { _ = take() }

    private func take() -> Callback? { callback.withLock { $0.take() } }
}
