import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct OperationEndTests {
    private struct Fault: Error {}

    // MARK: Finishing

    @Test func `on the loop's thread an operation has finished when finish returns`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.finish(with: .failure(Fault()))
                operation.log("\(operation.isFinished)")
            }
            operation.start()
            operation.begun.wait()
            #expect(operation.log.all == ["start", "finish", "true"])
            #expect(operation.error is Fault)
        }
    }

    @Test func `from another thread an operation finishes on the loop's`() async throws {
        try await withRunLoop { loop in
            final class Operation: ScriptedOperation, @unchecked Sendable {
                override func operationWillFinish() { log("at home \(!Thread.isMainThread && isHome)") }
                var isHome: Bool { home.isCurrent }
                let home: RunLoop

                init(home: RunLoop) {
                    self.home = home
                    super.init(runLoop: home)
                }
            }
            let operation = Operation(home: loop)
            operation.start()
            operation.begun.wait()
            operation.finish()
            operation.ended.wait()
            #expect(operation.log.all == ["start", "at home true"])
        }
    }

    @Test func `only the first result counts`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.finish()
                operation.finish(with: .failure(Fault()))
            }
            operation.start()
            operation.ended.wait()
            operation.finish(with: .failure(Fault()))
            operation.start()
            #expect(operation.succeeded)
            #expect(operation.log.all == ["start", "finish"])
        }
    }

    @Test func `an operation with a result finishes without having begun when it is started`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop)
            operation.finish(with: .failure(Fault()))
            #expect(!operation.isFinished && operation.result == nil)
            operation.start()
            #expect(operation.isFinished && operation.error is Fault)
            #expect(operation.log.all.isEmpty)
        }
    }

    // MARK: Cancelling

    @Test func `an operation that is cancelled before its start finishes at once without beginning`()
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

    @Test func `an operation that is cancelled before its loop has looked does not begin`() async throws {
        try await onItsOwnThread {
            let operation = ScriptedOperation(runLoop: .current)
            operation.start()
            operation.cancel()
            RunLoop.current.run()
            #expect(operation.error is CancellationError)
            #expect(operation.log.all.isEmpty)
        }
    }

    @Test func `however many threads cancel, the operation is told once, on the loop's thread`() async throws
    {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop)
            operation.start()
            operation.begun.wait()
            DispatchQueue.concurrentPerform(iterations: 8) { _ in operation.cancel() }
            operation.ended.wait()
            operation.cancel()
            #expect(operation.log.all == ["start", "cancel", "finish"])
            #expect(operation.isCancelled && operation.error is CancellationError)
        }
    }

    @Test func `cancelling inside the start is told of after it`() async throws {
        try await withRunLoop { loop in
            let operation = ScriptedOperation(runLoop: loop) { operation in
                operation.cancel()
                operation.log("started")
            }
            operation.start()
            operation.ended.wait()
            #expect(operation.log.all == ["start", "started", "cancel", "finish"])
        }
    }

    @Test func `an operation may take its time to end after it was cancelled, and say how`() async throws {
        try await withRunLoop { loop in
            final class Patient: ScriptedOperation, @unchecked Sendable {
                override func operationDidCancel() {
                    log("cancel")
                    Timer.scheduled(after: .milliseconds(1)) { _ in self.finish() }
                }
            }
            let operation = Patient(runLoop: loop)
            operation.start()
            operation.begun.wait()
            operation.cancel()
            operation.ended.wait()
            #expect(operation.log.all == ["start", "cancel", "finish"])
            #expect(operation.succeeded && operation.isCancelled)
        }
    }

    @Test func `cancelling all operations of a queue frees it of those under way and those that wait`()
        async throws
    {
        try await withRunLoop { loop in
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 1
            let operations = (0..<3).map { _ in ScriptedOperation(runLoop: loop) }
            queue.addOperations(operations, waitUntilFinished: false)
            operations[0].begun.wait()
            // Here, so that the first does not make room before the others are cancelled.
            loop.performAndWait { queue.cancelAllOperations() }
            queue.waitUntilAllOperationsAreFinished()
            #expect(operations[0].log.all == ["start", "cancel", "finish"])
            #expect(operations[1].log.all.isEmpty && operations[2].log.all.isEmpty)
            #expect(operations.allSatisfy { $0.error is CancellationError })
        }
    }

    @Test func `cancelling against finishing, one of them wins and the operation finishes once`() async throws
    {
        try await withRunLoop { loop in
            for _ in 0..<50 {
                let operation = ScriptedOperation(runLoop: loop)
                operation.start()
                operation.begun.wait()
                DispatchQueue.concurrentPerform(iterations: 2) { index in
                    if index == 0 { operation.cancel() } else { operation.finish() }
                }
                operation.ended.wait()
                #expect(operation.log.all.filter { $0 == "finish" }.count == 1)
                #expect(operation.result != nil)
            }
        }
    }

    // MARK: The loop's end

    @Test func `an operation whose loop has ended already fails`() async throws {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "gone")
            thread.stop()
            let operation = ScriptedOperation(runLoop: thread.runLoop)
            operation.start()
            operation.ended.wait()
            #expect(operation.error is RunLoopHasEnded)
            #expect(operation.log.all.isEmpty)
        }
    }

    @Test func `an operation whose loop ends under it lets go of its work and fails`() async throws {
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "going")
            let operation = ScriptedOperation(runLoop: thread.runLoop)
            operation.start()
            operation.begun.wait()
            thread.stop()
            operation.ended.wait()
            #expect(operation.error is RunLoopHasEnded)
            #expect(operation.log.all == ["start", "finish"])
        }
    }

    // MARK: What is let go of

    @Test func `the object of a work closure lives on the loop's thread, until the operation finishes`()
        async throws
    {
        try await withRunLoop { loop in
            let log = Trace()
            let (begun, ended) = (Happening(), Happening())
            let operation = RunLoopOperation(runLoop: loop) { _ in
                log("made at home \(loop.isCurrent)")
                begun.happened()
                return AtEnd { log("ended at home \(loop.isCurrent)") }
            }
            operation.completionBlock = { ended.happened() }
            operation.start()
            begun.wait()
            operation.cancel()
            ended.wait()
            #expect(log.all == ["made at home true", "ended at home true"])
        }
    }

    @Test func `a work closure may finish the operation at once`() async throws {
        try await withRunLoop { loop in
            let ended = Happening()
            let operation = RunLoopOperation(runLoop: loop) { operation in
                operation.finish()
                return AtEnd { ended.happened() }
            }
            operation.start()
            ended.wait()
            operation.waitUntilFinished()
        }
    }

    @Test(arguments: [true, false])
    func `a finished operation is freed, and so is what its closures hold`(isCancelled: Bool) async throws {
        let freed = Happening()
        try await withRunLoop { loop in
            do {
                let held = AtEnd { freed.happened() }
                let operation = RunLoopOperation(runLoop: loop) { _ in held }
                let ended = Happening()
                operation.completionBlock = {
                    withExtendedLifetime((operation, held)) {}
                    ended.happened()
                }
                operation.start()
                if isCancelled { operation.cancel() } else { operation.finish() }
                ended.wait()
            }
        }
        try await onItsOwnThread { freed.wait() }
    }

    // MARK: Progress

    @Test func `success completes the progress, of which a parent learns`() async throws {
        try await withRunLoop { loop in
            let operations = (0..<2).map { _ in ScriptedOperation(runLoop: loop) { $0.finish() } }
            let whole = Progress.discreteProgress(totalUnitCount: 2)
            for operation in operations { whole.addChild(operation.progress, withPendingUnitCount: 1) }
            for operation in operations {
                operation.start()
                operation.ended.wait()
            }
            #expect(whole.completedUnitCount == 2 && whole.isFinished)
        }
    }

    @Test func `cancelling the progress cancels the operation, and the other way round`() async throws {
        try await withRunLoop { loop in
            let (first, second) = (ScriptedOperation(runLoop: loop), ScriptedOperation(runLoop: loop))
            for operation in [first, second] { operation.start() }
            first.progress.cancel()
            second.cancel()
            for operation in [first, second] { operation.ended.wait() }
            #expect(first.isCancelled && first.error is CancellationError)
            #expect(second.progress.isCancelled && !second.progress.isFinished)
        }
    }
}
