import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationTests {
    // MARK: Starting

    @Test func `two operations execute at once on one thread`() throws {
        try withExecuting(2) { operations in
            let (first, second) = (operations[0], operations[1])
            #expect(first.isExecuting && second.isExecuting)
            second.finish()
            second.finished.wait()
            #expect(first.isExecuting && !first.isFinished && !second.isExecuting && second.isFinished)
            first.finish()
            first.finished.wait()
            #expect(first.succeeded && second.succeeded)
        }
    }

    @Test func `the work begins on the loop's thread after start has returned`() throws {
        try withRunLoop { loop in
            let outside = ScriptedOperation(runLoop: loop) { operation in
                operation.log("\(loop.isCurrent)")
                operation.finish()
            }
            outside.start()
            outside.finished.wait()
            #expect(outside.log.all == ["start", "true", "finish"])
        }
        let inside = ScriptedOperation { $0.finish() }
        RunLoop.current.perform {
            inside.start()
            inside.log("started")
        }
        RunLoop.current.run()
        #expect(inside.log.all == ["started", "start", "finish"])
    }

    @Test func `operations without a loop share one thread`() {
        let loops = Shared<Set<ObjectIdentifier>>([])
        let operations = (0..<2).map { _ in
            ScriptedOperation(runLoop: nil) { operation in
                loops.update { _ = $0.insert(ObjectIdentifier(RunLoop.current)) }
                operation.finish()
            }
        }
        for operation in operations { operation.start() }
        for operation in operations { operation.finished.wait() }
        #expect(loops.value.count == 1 && loops.value != [ObjectIdentifier(RunLoop.current)])
    }

    @Test func `the work begins only in the operation's modes`() {
        let mode = RunLoop.Mode("work")
        let operation = ScriptedOperation(modes: [mode]) { $0.finish() }
        operation.start()
        RunLoop.current.run(mode: .default, before: Deadline.distantPast)
        #expect(operation.log.all.isEmpty && operation.isExecuting)
        while !operation.isFinished, RunLoop.current.run(mode: mode, before: Deadline.distantFuture) {}
        #expect(operation.succeeded)
    }

    // MARK: Finishing

    @Test
    func `finish on the loop's thread returns after the operation has finished, and its first result counts`()
    {
        let operation = ScriptedOperation { operation in
            operation.finish(with: .failure(TestError()))
            operation.log("\(operation.isFinished)")
            operation.finish()
        }
        run(operation)
        operation.finish()
        operation.start()
        #expect(operation.log.all == ["start", "finish", "true"] && operation.error is TestError)
    }

    @Test func `an operation may finish while its operationDidStart runs the loop`() {
        let operation = ScriptedOperation { operation in
            let loop = RunLoop.current
            operation.cancel()
            loop.performAsSource { operation.finish() }
            while !operation.isFinished, loop.run(mode: .default, before: .distantFuture) {}
            operation.log("started")
        }
        run(operation)
        #expect(operation.log.all == ["start", "finish", "started"])
        #expect(operation.succeeded && operation.isCancelled)
    }

    @Test func `finish on another thread finishes the operation on the loop's thread`() throws {
        try withExecuting { operations in
            operations[0].finish()
            operations[0].finished.wait()
            #expect(operations[0].log.all == ["start", "finish"])
        }
    }

    @Test(arguments: [true, false])
    func `starting an operation that is cancelled or has a result finishes it without beginning the work`(
        isCancelled: Bool
    ) {
        let operation = ScriptedOperation()
        if isCancelled { operation.cancel() } else { operation.finish(with: .failure(TestError())) }
        #expect(!operation.isFinished && operation.result == nil)
        operation.start()
        #expect(operation.isFinished && operation.log.all.isEmpty)
        #expect(isCancelled ? operation.error is CancellationError : operation.error is TestError)
    }

    // MARK: Cancelling

    @Test func `cancelling before the loop runs prevents the work from beginning`() {
        let operation = ScriptedOperation()
        operation.start()
        operation.cancel()
        RunLoop.current.run()
        #expect(operation.error is CancellationError && operation.log.all.isEmpty)
    }

    @Test func `cancelling on many threads calls operationDidCancel once`() throws {
        try withExecuting { operations in
            let operation = operations[0]
            onThreads(4) { _ in operation.cancel() }
            operation.finished.wait()
            operation.cancel()
            #expect(operation.log.all == ["start", "cancel", "finish"])
            #expect(operation.isCancelled && operation.error is CancellationError)
        }
    }

    @Test func `cancelling inside operationDidStart calls operationDidCancel after it returns`() {
        let operation = ScriptedOperation { operation in
            operation.cancel()
            operation.log("started")
        }
        run(operation)
        #expect(operation.log.all == ["start", "started", "cancel", "finish"])
    }

    @Test func `a cancelled operation may finish later, with its own result`() {
        final class SlowToCancel: ScriptedOperation, @unchecked Sendable {
            override func operationDidCancel() {
                log("cancel")
                Timer.scheduled(after: .milliseconds(1)) { _ in self.finish() }
            }
        }
        let operation = SlowToCancel { $0.cancel() }
        run(operation)
        #expect(operation.log.all == ["start", "cancel", "finish"])
        #expect(operation.succeeded && operation.isCancelled)
    }

    @Test func `an operation that is cancelled and finished concurrently finishes once`() throws {
        try withExecuting(Depth.of(full: 500, quick: 50)) { operations in
            for operation in operations {
                DispatchQueue.concurrentPerform(iterations: 2) { index in
                    if index == 0 { operation.cancel() } else { operation.finish() }
                }
                operation.finished.wait()
                #expect(operation.log.all.count { $0 == "finish" } == 1 && operation.result != nil)
            }
        }
    }

    // MARK: In queues

    @Test(arguments: [1, 4])
    func `a queue executes its maximum number of operations at once, and no more`(maximum: Int) throws {
        try withRunLoop { loop in
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = maximum
            let operations = (0..<2 * maximum).map { _ in ScriptedOperation(runLoop: loop) }
            queue.addOperations(operations, waitUntilFinished: false)
            for operation in operations.prefix(maximum) { operation.started.wait() }
            #expect(operations.map(\.isExecuting) == (0..<2 * maximum).map { $0 < maximum })
            for operation in operations { operation.finish() }
            queue.waitUntilAllOperationsAreFinished()
            #expect(operations.allSatisfy { $0.succeeded })
        }
    }

    @Test func `cancelAllOperations ends executing and pending operations`() throws {
        try withRunLoop { loop in
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 1
            let operations = (0..<3).map { _ in ScriptedOperation(runLoop: loop) }
            queue.addOperations(operations, waitUntilFinished: false)
            operations[0].started.wait()
            // On the loop's thread, so that the first cannot finish before the others are cancelled.
            loop.performAndWait { queue.cancelAllOperations() }
            queue.waitUntilAllOperationsAreFinished()
            #expect(operations.map(\.log.all) == [["start", "cancel", "finish"], [], []])
            #expect(operations.allSatisfy { $0.error is CancellationError })
        }
    }

    // MARK: Misuse

    @Test(arguments: [true, false])
    func `starting an operation twice, or before its dependencies have finished, traps`(isTwice: Bool) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [isTwice] in
            let operation = ScriptedOperation()
            if isTwice { operation.start() } else { operation.addDependency(ScriptedOperation()) }
            operation.start()
        }
        #expect(result.message.contains(isTwice ? "twice" : "dependencies"))
    }
}

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
