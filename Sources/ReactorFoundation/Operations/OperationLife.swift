import Reactor

/// Where a ``RunLoopOperation`` is between being made and having finished, and what it has to do next. Pure: it calls
/// nobody.
struct OperationLife {
    /// What the loop's thread has to do for the operation.
    enum Step { case start, cancel, finish }

    private enum Phase { case made, started, working, completing, finished }

    private var phase = Phase.made
    private var isCancelled = false
    private var hasToldOfCancelling = false
    /// Whether one of the operation's methods is on the stack.
    private var isInStep = false
    private(set) var result: Result<Void, any Error>?
    /// The loop that does the work, once the operation has been started.
    var loop: RunLoop?

    var isExecuting: Bool { phase != .made && phase != .finished }
    var isFinished: Bool { phase == .finished }
    /// Whether the work has begun and has not finished.
    var isWorking: Bool { phase == .working }
    var hasResult: Bool { result != nil }
    var publishedResult: Result<Void, any Error>? { isFinished ? result : nil }

    /// False if the operation has been started before.
    mutating func start() -> Bool {
        guard phase == .made else { return false }
        phase = .started
        return true
    }

    /// False if that is known, or comes too late.
    mutating func cancel() -> Bool {
        guard !isCancelled, phase != .completing, phase != .finished else { return false }
        isCancelled = true
        return true
    }

    /// False if there is a result already.
    mutating func takeResult(_ result: Result<Void, any Error>) -> Bool {
        guard self.result == nil else { return false }
        self.result = result
        return true
    }

    /// What to do next. A result can be acted upon inside one of the operation's methods, nothing else.
    mutating func nextStep() -> Step? {
        guard phase == .started || phase == .working else { return nil }
        if isCancelled, phase == .started, result == nil { result = .failure(CancellationError()) }
        if result != nil { return .finish }
        guard !isInStep else { return nil }
        if phase == .started {
            phase = .working
        } else if isCancelled, !hasToldOfCancelling {
            hasToldOfCancelling = true
        } else {
            return nil
        }
        isInStep = true
        return hasToldOfCancelling ? .cancel : .start
    }

    mutating func stepEnded() { isInStep = false }

    /// Whether the work had begun; nil if somebody else finishes the operation already.
    mutating func beginCompleting() -> Bool? {
        guard phase == .started || phase == .working else { return nil }
        defer { phase = .completing }
        return phase == .working
    }

    mutating func complete() {
        phase = .finished
        loop = nil
    }
}
