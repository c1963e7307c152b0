import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationEndTests {
    private struct TestError: Error {}

    // MARK: Finishing

    @Test func `finish on the loop's thread returns after the operation has finished`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.finish(with: .failure(TestError()))
                operation.log("\(operation.isFinished)")
            }
            operation.start()
            operation.started.wait()
            #expect(operation.log.all == ["start", "finish", "true"])
            #expect(operation.error is TestError)
        }
    }

    @Test func `an operation may finish while its operationDidStart runs the loop`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.cancel()
                loop.performAsSource { operation.finish() }
                while !operation.isFinished, loop.run(mode: .default, before: .distantFuture) {}
                operation.log("started")
            }
            operation.start()
            operation.started.wait()
            #expect(operation.log.all == ["start", "finish", "started"])
            #expect(operation.succeeded && operation.isCancelled)
        }
    }

    @Test func `finish on another thread finishes the operation on the loop's thread`() async throws {
        try await withRunLoop { loop in
            final class Operation: ScriptedOperation, @unchecked Sendable {
                let loop: RunLoop

                init(loop: RunLoop) {
                    self.loop = loop
                    super.init(runLoop: loop)
                }

                override func operationWillFinish() { log("on loop thread: \(loop.isCurrent)") }
            }
            let operation = Operation(loop: loop)
            operation.start()
            operation.started.wait()
            operation.finish()
            operation.finished.wait()
            #expect(operation.log.all == ["start", "on loop thread: true"])
        }
    }

    @Test func `only the first result counts`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.finish()
                operation.finish(with: .failure(TestError()))
            }
            operation.start()
            operation.finished.wait()
            operation.finish(with: .failure(TestError()))
            operation.start()
            #expect(operation.succeeded)
            #expect(operation.log.all == ["start", "finish"])
        }
    }

    @Test func `starting an operation that has a result finishes it without beginning the work`() async throws
    {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop)
            operation.finish(with: .failure(TestError()))
            #expect(!operation.isFinished && operation.result == nil)
            operation.start()
            #expect(operation.isFinished && operation.error is TestError)
            #expect(operation.log.all.isEmpty)
        }
    }

    // MARK: Cancelling

    @Test func `starting a cancelled operation finishes it without beginning the work`()
        async throws
    {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop)
            operation.cancel()
            #expect(!operation.isFinished)
            operation.start()
            #expect(operation.isFinished && operation.error is CancellationError)
            #expect(operation.log.all.isEmpty)
        }
    }

    @Test func `cancelling before the loop runs prevents the work from beginning`() {
        let operation = ScriptedOperation(runLoop: RunLoop.current)
        operation.start()
        operation.cancel()
        RunLoop.current.run()
        #expect(operation.error is CancellationError)
        #expect(operation.log.all.isEmpty)
    }

    @Test func `cancelling on many threads calls operationDidCancel once`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop)
            operation.start()
            operation.started.wait()
            DispatchQueue.concurrentPerform(iterations: 8) { _ in operation.cancel() }
            operation.finished.wait()
            operation.cancel()
            #expect(operation.log.all == ["start", "cancel", "finish"])
            #expect(operation.isCancelled && operation.error is CancellationError)
        }
    }

    @Test func `cancelling inside operationDidStart calls operationDidCancel after it returns`() async throws
    {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.cancel()
                operation.log("started")
            }
            operation.start()
            operation.finished.wait()
            #expect(operation.log.all == ["start", "started", "cancel", "finish"])
        }
    }

    @Test func `a cancelled operation may finish later, with its own result`() async throws {
        try await withRunLoop { loop in
            final class SlowToCancel: ScriptedOperation, @unchecked Sendable {
                override func operationDidCancel() {
                    log("cancel")
                    Timer.scheduled(after: .milliseconds(1)) { _ in self.finish() }
                }
            }
            let operation = SlowToCancel(runLoop: loop)
            operation.start()
            operation.started.wait()
            operation.cancel()
            operation.finished.wait()
            #expect(operation.log.all == ["start", "cancel", "finish"])
            #expect(operation.succeeded && operation.isCancelled)
        }
    }

    @Test func `cancelAllOperations ends executing and pending operations`()
        async throws
    {
        try await withRunLoop { loop in
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 1
            let operations = (0..<3).map { _ in ScriptedOperation(runLoop: loop) }
            queue.addOperations(operations, waitUntilFinished: false)
            operations[0].started.wait()
            // On the loop's thread, so that the first cannot finish before the others are cancelled.
            loop.performAndWait { queue.cancelAllOperations() }
            queue.waitUntilAllOperationsAreFinished()
            #expect(operations[0].log.all == ["start", "cancel", "finish"])
            #expect(operations[1].log.all.isEmpty && operations[2].log.all.isEmpty)
            #expect(operations.allSatisfy { $0.error is CancellationError })
        }
    }

    @Test func `an operation that is cancelled and finished concurrently finishes once`() async throws {
        try await withRunLoop { loop in
            for _ in 0..<50 {
                let operation = ScriptedOperation(runLoop: loop)
                operation.start()
                operation.started.wait()
                DispatchQueue.concurrentPerform(iterations: 2) { index in
                    if index == 0 { operation.cancel() } else { operation.finish() }
                }
                operation.finished.wait()
                #expect(operation.log.all.filter { $0 == "finish" }.count == 1)
                #expect(operation.result != nil)
            }
        }
    }

    // MARK: The end of the loop

    @Test func `an operation on a loop that has ended fails`() throws {
        let thread = try RunLoopThread(name: "ended")
        thread.stop()
        let operation = ScriptedOperation(runLoop: thread.runLoop)
        operation.start()
        operation.finished.wait()
        #expect(operation.error is RunLoopEndedError)
        #expect(operation.log.all.isEmpty)
    }

    @Test func `an operation fails and releases its resources when its loop ends`() throws {
        let thread = try RunLoopThread(name: "ending")
        let operation = ScriptedOperation(runLoop: thread.runLoop)
        operation.start()
        operation.started.wait()
        thread.stop()
        operation.finished.wait()
        #expect(operation.error is RunLoopEndedError)
        #expect(operation.log.all == ["start", "finish"])
    }

    // MARK: Memory

    @Test func `the work object is created and released on the loop's thread`()
        async throws
    {
        try await withRunLoop { loop in
            let log = Trace()
            let (started, finished) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
            let operation = RunLoopOperation(runLoop: loop) { _ in
                log("created on loop thread: \(loop.isCurrent)")
                started.signal()
                return AtEnd { log("released on loop thread: \(loop.isCurrent)") }
            }
            operation.completionBlock = { finished.signal() }
            operation.start()
            started.wait()
            operation.cancel()
            finished.wait()
            #expect(log.all == ["created on loop thread: true", "released on loop thread: true"])
        }
    }

    @Test func `a work closure may finish the operation before it returns`() async throws {
        try await withRunLoop { loop in
            let finished = DispatchSemaphore(value: 0)
            let operation = RunLoopOperation(runLoop: loop) { operation in
                operation.finish()
                return AtEnd { finished.signal() }
            }
            operation.start()
            finished.wait()
            operation.waitUntilFinished()
        }
    }

    @Test(arguments: [true, false])
    func `a finished operation releases its closures and is deallocated`(isCancelled: Bool) async throws {
        let freed = DispatchSemaphore(value: 0)
        try await withRunLoop { loop in
            do {
                let captured = AtEnd { freed.signal() }
                let operation = RunLoopOperation(runLoop: loop) { _ in captured }
                let finished = DispatchSemaphore(value: 0)
                operation.completionBlock = {
                    withExtendedLifetime((operation, captured)) {}
                    finished.signal()
                }
                operation.start()
                if isCancelled { operation.cancel() } else { operation.finish() }
                finished.wait()
            }
        }
        try await onItsOwnThread { freed.wait() }
    }

    // MARK: Progress

    @Test func `success completes the progress and updates its parent`() async throws {
        try await withRunLoop { loop in
            let operations = (0..<2).map { _ in ScriptedOperation(runLoop: loop) { $0.finish() } }
            let parent = Progress.discreteProgress(totalUnitCount: 2)
            for operation in operations { parent.addChild(operation.progress, withPendingUnitCount: 1) }
            for operation in operations {
                operation.start()
                operation.finished.wait()
            }
            #expect(parent.completedUnitCount == 2 && parent.isFinished)
        }
    }

    @Test func `cancelling the progress cancels the operation, and vice versa`() async throws {
        try await withRunLoop { loop in
            let (first, second) = (ScriptedOperation(runLoop: loop), ScriptedOperation(runLoop: loop))
            for operation in [first, second] { operation.start() }
            first.progress.cancel()
            second.cancel()
            for operation in [first, second] { operation.finished.wait() }
            #expect(first.isCancelled && first.error is CancellationError)
            #expect(second.progress.isCancelled && !second.progress.isFinished)
        }
    }
}
