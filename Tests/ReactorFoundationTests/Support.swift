import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport

/// Calls `body` with the loop of a new thread, which runs until `body` returns.
func withRunLoop(_ body: (RunLoop) throws -> Void) throws {
    let thread = try RunLoopThread(name: "loop")
    defer { thread.stop() }
    try body(thread.runLoop)
}

/// An operation that logs the calls of its methods, and calls a test's closure when it starts.
class ScriptedOperation: RunLoopOperation, @unchecked Sendable {
    let log = Trace()
    let started = DispatchSemaphore(value: 0)
    let finished = DispatchSemaphore(value: 0)
    /// Called by `operationDidStart()`.
    private let onStart: @Sendable (ScriptedOperation) -> Void

    init(
        runLoop: RunLoop? = RunLoop.current, modes: [RunLoop.Mode] = [.common],
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

struct TestError: Error {}

/// Starts an operation on the thread's loop, and runs the loop until the operation has finished.
func run(_ operation: Operation) {
    operation.start()
    RunLoop.current.run()
}
