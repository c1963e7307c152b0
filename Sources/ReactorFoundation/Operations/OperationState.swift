import Reactor

/// The state machine of a ``RunLoopOperation``. It decides which step comes next; the operation performs the
/// steps.
struct OperationState {
    /// A step for the operation to perform on the loop's thread.
    enum Step { case start, cancel, finish }

    private enum Phase { case created, started, working, completing, finished }

    private var phase = Phase.created
    private var isCancelled = false
    private var hasDeliveredCancellation = false
    /// Whether one of the operation's overridable methods is on the stack.
    private var isInStep = false
    private(set) var result: Result<Void, any Error>?
    /// The loop that the operation works on, from its start until it finishes.
    var loop: RunLoop?

    var isExecuting: Bool { phase != .created && phase != .finished }
    var isFinished: Bool { phase == .finished }
    /// Whether `operationDidStart()` has been called and the operation has not begun to finish.
    var isWorking: Bool { phase == .working }
    var hasResult: Bool { result != nil }
    var publishedResult: Result<Void, any Error>? { isFinished ? result : nil }

    /// Returns false if the operation has already been started.
    mutating func start() -> Bool {
        guard phase == .created else { return false }
        phase = .started
        return true
    }

    /// Returns false if the operation has already been cancelled, or is about to finish.
    mutating func cancel() -> Bool {
        guard !isCancelled, phase != .completing, phase != .finished else { return false }
        isCancelled = true
        return true
    }

    /// Returns false if the operation already has a result.
    mutating func setResult(_ result: Result<Void, any Error>) -> Bool {
        guard self.result == nil else { return false }
        self.result = result
        return true
    }

    /// The next step to perform. While a step is on the stack, only finishing may begin: `finish(with:)`
    /// finishes the operation before it returns.
    mutating func nextStep() -> Step? {
        guard phase == .started || phase == .working else { return nil }
        if isCancelled, phase == .started, result == nil { result = .failure(CancellationError()) }
        if result != nil { return .finish }
        guard !isInStep else { return nil }
        if phase == .started {
            phase = .working
        } else if isCancelled, !hasDeliveredCancellation {
            hasDeliveredCancellation = true
        } else {
            return nil
        }
        isInStep = true
        return hasDeliveredCancellation ? .cancel : .start
    }

    mutating func stepEnded() { isInStep = false }

    /// Returns whether the work had begun; nil if another call is already finishing the operation.
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
