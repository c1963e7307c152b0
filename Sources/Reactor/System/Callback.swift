/// A closure to be kept behind a lock.
///
/// In a box of its own: kept there bare, a closure is wrapped once more by every access (a reabstraction
/// thunk at each write-back), and each call then goes through all the wrappings.
struct Callback: Sendable {
    private let closure: @Sendable () -> Void

    init(_ closure: @escaping @Sendable () -> Void) { self.closure = closure }

    func callAsFunction() { closure() }
}
