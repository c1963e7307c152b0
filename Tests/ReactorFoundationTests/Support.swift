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
    private let loop = Shared<RunLoop?>(nil)

    init(
        runLoop: RunLoop? = RunLoop.current, modes: [RunLoop.Mode] = [.common],
        onStart: @escaping @Sendable (ScriptedOperation) -> Void = { _ in }
    ) {
        self.onStart = onStart
        super.init(runLoop: runLoop, inModes: modes)
        completionBlock = { [finished] in finished.signal() }
    }

    override func operationDidStart() {
        log("start")
        loop.value = RunLoop.current
        onStart(self)
        started.signal()
    }

    override func operationDidCancel() {
        log("cancel")
        super.operationDidCancel()
    }

    override func operationWillFinish() {
        log(loop.value?.isCurrent == true ? "finish" : "finish on another thread")
    }

    var succeeded: Bool {
        if case .success = result { true } else { false }
    }

    var error: (any Error)? {
        if case .failure(let error) = result { error } else { nil }
    }
}

/// Calls `body` with operations that execute on a new thread.
func withExecuting(_ count: Int = 1, _ body: ([ScriptedOperation]) throws -> Void) throws {
    try withRunLoop { loop in
        let operations = (0..<count).map { _ in ScriptedOperation(runLoop: loop) }
        for operation in operations { operation.start() }
        for operation in operations { operation.started.wait() }
        try body(operations)
    }
}

struct TestError: Error {}

/// Starts an operation on the thread's loop, and runs the loop until the operation has finished.
func run(_ operation: Operation) {
    operation.start()
    RunLoop.current.run()
}
