/// Called once, when an output has sent all bytes or has failed, unless it is cancelled before.
typealias FlushCallback = Transferred<Callback>

extension FlushCallback {
    convenience init(_ closure: @escaping @Sendable () -> Void) { self.init(Callback(closure)) }

    func callAsFunction() { take()?() }

    /// Releases the closure, which is not called any more.
    func cancel() { _ = take() }
}
