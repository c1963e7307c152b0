import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationEndTests {
    // MARK: The end of the loop

    @Test(arguments: [true, false])
    func `an operation fails when its loop ends or has ended`(hasEnded: Bool) throws {
        let thread = try RunLoopThread(name: "ending")
        if hasEnded { thread.stop() }
        let operation = ScriptedOperation(runLoop: thread.runLoop)
        operation.start()
        if !hasEnded { operation.started.wait() }
        thread.stop()
        operation.finished.wait()
        #expect(operation.error is RunLoopEndedError)
        #expect(operation.log.all == (hasEnded ? [] : ["start", "finish"]))
    }

    // MARK: Memory

    @Test func `an executing operation retains itself`() throws {
        try withRunLoop { loop in
            let finished = DispatchSemaphore(value: 0)
            weak var operation: ScriptedOperation?
            do {
                let started = ScriptedOperation(runLoop: loop)
                started.completionBlock = { finished.signal() }
                operation = started
                started.start()
                started.started.wait()
            }
            try #require(operation).finish()
            finished.wait()
        }
    }

    @Test func `the work object is created and released on the loop's thread`() throws {
        try withRunLoop { loop in
            let (log, started, finished) = (Trace(), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
            let operation = RunLoopOperation(runLoop: loop) { _ in
                log("created \(loop.isCurrent)")
                started.signal()
                return AtEnd { log("released \(loop.isCurrent)") }
            }
            operation.completionBlock = { finished.signal() }
            operation.start()
            started.wait()
            operation.cancel()
            finished.wait()
            #expect(log.all == ["created true", "released true"])
        }
    }

    @Test func `a work closure may finish the operation before it returns`() {
        let log = Trace()
        let operation = RunLoopOperation(runLoop: RunLoop.current) { operation in
            operation.finish()
            return AtEnd { log("released") }
        }
        run(operation)
        #expect(operation.isFinished && log.all == ["released"])
    }

    @Test(arguments: [true, false])
    func `a finished operation releases its closures and is deallocated`(isCancelled: Bool) throws {
        let freed = DispatchSemaphore(value: 0)
        try withRunLoop { loop in
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
        freed.wait()
    }

    // MARK: Dependencies

    @Test func `a cancelled operation is released only after the operation that it depends on has finished`()
        throws
    {
        let (operation, queue) = (ScriptedOperation { $0.finish() }, OperationQueue())
        weak var dependent: BlockOperation?
        do {
            let end = BlockOperation {}
            dependent = end
            end.addDependency(operation)
            end.cancel()
            queue.addOperation(end)
            end.waitUntilFinished()
        }
        queue.waitUntilAllOperationsAreFinished()
        try #require(dependent != nil)
        run(operation)
        waitUntil { dependent == nil }
    }

    @Test func `a cancelled operation removes its dependencies before it finishes`() {
        let (dependency, operation) = (BlockOperation {}, ScriptedOperation())
        operation.addDependency(dependency)
        operation.cancel()
        operation.start()
        #expect(operation.isFinished && operation.dependencies.isEmpty)
        dependency.start()
    }

    // MARK: Progress

    @Test func `success completes the progress and updates its parent`() {
        let operations = (0..<2).map { _ in ScriptedOperation { $0.finish() } }
        let parent = Progress.discreteProgress(totalUnitCount: 2)
        for operation in operations { parent.addChild(operation.progress, withPendingUnitCount: 1) }
        for operation in operations { run(operation) }
        #expect(parent.completedUnitCount == 2 && parent.isFinished)
    }

    @Test func `cancelling the progress cancels the operation, and vice versa`() {
        let (first, second) = (ScriptedOperation { $0.progress.cancel() }, ScriptedOperation { $0.cancel() })
        for operation in [first, second] { run(operation) }
        #expect(first.isCancelled && first.error is CancellationError)
        #expect(second.progress.isCancelled && !second.progress.isFinished)
    }
}
