/// A closure that is stored behind a lock.
///
/// It is wrapped in a struct because the compiler adds a reabstraction thunk to a bare closure each time that the lock
/// writes it back, and every call then goes through all of them.
struct Callback: Sendable {
    private let closure: @Sendable () -> Void

    init(_ closure: @escaping @Sendable () -> Void) { self.closure = closure }

    func callAsFunction() { closure() }
}
