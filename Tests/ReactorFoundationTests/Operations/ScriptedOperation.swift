import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport

/// An operation that logs the calls of its methods, and calls a test's closure when it starts.
class ScriptedOperation: RunLoopOperation, @unchecked Sendable {
    let log = Trace()
    let started = DispatchSemaphore(value: 0)
    let finished = DispatchSemaphore(value: 0)
    /// Called by `operationDidStart()`.
    private let onStart: @Sendable (ScriptedOperation) -> Void

    init(
        runLoop: RunLoop? = nil, modes: [RunLoop.Mode] = [.common],
        onStart: @escaping @Sendable (ScriptedOperation) -> Void = { _ in }
    ) {
        self.onStart = onStart
        super.init(runLoop: runLoop, modes: modes)
        completionBlock = { [finished] in finished.signal() }
    }

    override func operationDidStart() {
        log("start")
        onStart(self)
        started.signal()
    }

    override func operationDidCancel() {
        log("cancel")
        super.operationDidCancel()
    }

    override func operationWillFinish() { log("finish") }

    var succeeded: Bool {
        if case .success = result { true } else { false }
    }

    var error: (any Error)? {
        if case .failure(let error) = result { error } else { nil }
    }
}

/// Calls `body` with the loop of a new thread, which runs until `body` returns.
func withRunLoop<Result: Sendable>(
    _ body: @escaping @Sendable (RunLoop) throws -> Result
) async throws -> Result {
    try await onItsOwnThread {
        let thread = try RunLoopThread(name: "loop")
        defer { thread.stop() }
        return try body(thread.runLoop)
    }
}
