import SystemPackage

/// A task that waits, in a list, until whatever ends that first: the thread that takes it out, a timeout, its cancellation, or
/// the end of its loop.
final class TaskWait: Sendable {
    private enum Outcome {
        case none
        case ended(Errno?)
    }

    fileprivate let parker: TaskParker
    private let outcome = Mutex(Outcome.none)

    fileprivate init(at parker: TaskParker) { self.parker = parker }

    /// Why the wait has ended; nil while it has not.
    fileprivate var result: Result<Void, Errno>? {
        switch outcome.withLock({ $0 }) {
        case .none: nil
        case .ended(nil): .success(())
        case .ended(let error?): .failure(error)
        }
    }

    var hasEnded: Bool { result != nil }

    /// Ends the wait, with or without an error. Returns false, and does nothing, if it has ended. Any thread.
    @discardableResult
    func end(_ error: Errno? = nil) -> Bool {
        let isFirst = outcome.withLock { outcome in
            guard case .none = outcome else { return false }
            outcome = .ended(error)
            return true
        }
        if isFirst { parker.unparkLater() }
        return isFirst
    }
}

/// Where a task waits: a loop, in whose time it waits, and an executor of that, in whose modes.
struct TaskPlace {
    let loop: RunLoop
    let executor: RunLoop.Executor
}

/// Suspends the task until the wait that `begin` is called with is ended.
///
/// - Parameters:
///   - deadline: When to give up; nil for never.
///   - place: Where the task waits.
/// - Throws: The wait's error; `Errno.timedOut`; `Errno.canceled`, also when the loop's thread ends.
nonisolated(nonsending) func suspendTask(
    until deadline: Deadline?, at place: TaskPlace, _ begin: (TaskWait) -> Void
) async throws(Errno) {
    let wait = TaskWait(at: TaskParker(on: place.loop, place.executor))
    guard place.executor.beginWaiting(at: wait.parker) else { throw .canceled }
    defer { place.executor.endWaiting(at: wait.parker) }
    begin(wait)
    while true {
        if let result = wait.result { return try result.get() }
        do throws(Errno) { try await wait.parker.park(until: deadline) } catch { wait.end(error) }
        if place.executor.inbox.isClosed { wait.end(.canceled) }
    }
}
