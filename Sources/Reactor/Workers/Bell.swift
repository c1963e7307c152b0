/// What one side of a hand-off rings to have the other go on; silent until it is connected, and after it has
/// been disconnected. From any thread.
final class Bell: Sendable {
    private let callback = Mutex<Callback?>(nil)

    func connect(_ callback: Callback) { self.callback.withLock { $0 = callback } }

    /// What the callback captured may be destroyed here.
    func disconnect() { _ = callback.withLock { $0.take() } }

    /// Calls the callback, with no lock held.
    func ring() { callback.withLock { $0 }?() }
}

extension [Bell] {
    func ring() { for bell in self { bell.ring() } }
}
