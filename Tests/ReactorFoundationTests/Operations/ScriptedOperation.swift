import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport

/// An operation that writes down what it is told, and does what a test wants it to when it is told of its start.
class ScriptedOperation: RunLoopOperation, @unchecked Sendable {
    let log = Trace()
    let begun = Happening()
    let ended = Happening()
    /// Called by `operationDidStart()`.
    private let atStart: @Sendable (ScriptedOperation) -> Void

    init(
        runLoop: RunLoop? = nil, modes: [RunLoop.Mode] = [.common],
        atStart: @escaping @Sendable (ScriptedOperation) -> Void = { _ in }
    ) {
        self.atStart = atStart
        super.init(runLoop: runLoop, modes: modes)
        completionBlock = { [ended] in ended.happened() }
    }

    override func operationDidStart() {
        log("start")
        atStart(self)
        begun.happened()
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

/// Has a thread of its own run a loop, for as long as `body` takes.
func withRunLoop<Result: Sendable>(
    _ body: @escaping @Sendable (RunLoop) throws -> Result
) async throws -> Result {
    try await onItsOwnThread {
        let thread = try RunLoopThread(name: "loop")
        defer { thread.stop() }
        return try body(thread.runLoop)
    }
}
