import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationTests {
    // MARK: Without a queue

    @Test func `two operations execute at once on one thread`() async throws {
        try await withRunLoop { loop in
            let first = ScriptedOperation(runLoop: loop)
            let second = ScriptedOperation(runLoop: loop)
            first.start()
            second.start()
            first.started.wait()
            second.started.wait()
            #expect(first.isExecuting && second.isExecuting)
            second.finish()
            second.finished.wait()
            #expect(first.isExecuting && !first.isFinished)
            #expect(!second.isExecuting && second.isFinished)
            first.finish()
            first.finished.wait()
            #expect(first.succeeded && second.succeeded)
        }
    }

    @Test func `start of a block operation returns after it has finished`() {
        let log = Trace()
        let operations = ["a", "b"].map { name in BlockOperation { log(name) } }
        for operation in operations { operation.start() }
        #expect(operations.allSatisfy { $0.isFinished })
        #expect(log.all == ["a", "b"])
    }

    @Test func `the work begins on the loop's thread after start has returned`()
        async throws
    {
        try await withRunLoop { loop in
            let fromOutside = ScriptedOperation(runLoop: loop) { $0.log("\(loop.isCurrent)") }
            fromOutside.start()
            fromOutside.started.wait()
            let fromInside = ScriptedOperation(runLoop: loop) { $0.log("\(loop.isCurrent)") }
            loop.perform {
                fromInside.start()
                fromInside.log("started")
            }
            fromInside.started.wait()
            #expect(fromOutside.log.all == ["start", "true"])
            #expect(fromInside.log.all == ["started", "start", "true"])
            for operation in [fromOutside, fromInside] { operation.finish() }
            for operation in [fromOutside, fromInside] { operation.finished.wait() }
        }
    }

    @Test func `operations without a loop share one thread`() {
        let loops = Trace()
        let operations = (0..<2).map { _ in
            ScriptedOperation { operation in
                loops("\(ObjectIdentifier(RunLoop.current))")
                operation.finish()
            }
        }
        for operation in operations { operation.start() }
        for operation in operations { operation.finished.wait() }
        #expect(Set(loops.all).count == 1 && loops.all.count == 2)
    }

    @Test func `the work begins only in the operation's modes`() {
        let mode = RunLoop.Mode("work")
        let operation = ScriptedOperation(runLoop: RunLoop.current, modes: [mode]) { $0.finish() }
        operation.start()
        RunLoop.current.run(mode: .default, before: Deadline.distantPast)
        #expect(operation.log.all.isEmpty && operation.isExecuting)
        while !operation.isFinished, RunLoop.current.run(mode: mode, before: Deadline.distantFuture) {}
        #expect(operation.succeeded)
    }

    @Test func `a loop runs while an operation executes on it`() {
        let operation = ScriptedOperation(runLoop: RunLoop.current) { operation in
            Timer.scheduled(after: .milliseconds(1)) { _ in operation.finish() }
        }
        operation.start()
        RunLoop.current.run()
        #expect(operation.log.all == ["start", "finish"])
    }

    @Test func `an executing operation retains itself`() async throws {
        try await withRunLoop { loop in
            let finished = DispatchSemaphore(value: 0)
            weak var weakOperation: ScriptedOperation?
            do {
                let operation = ScriptedOperation(runLoop: loop)
                operation.completionBlock = { finished.signal() }
                weakOperation = operation
                operation.start()
                operation.started.wait()
            }
            try #require(weakOperation).finish()
            finished.wait()
        }
    }

    // MARK: In queues

    @Test(arguments: [1, 3])
    func `a queue executes at most its maximum number of operations`(maximum: Int) async throws {
        try await withRunLoop { loop in
            let executing = PeakCounter()
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = maximum
            let operations = (0..<12).map { _ in
                ScriptedOperation(runLoop: loop) { operation in
                    executing.add(1)
                    Timer.scheduled(after: .milliseconds(1)) { _ in
                        executing.add(-1)
                        operation.finish()
                    }
                }
            }
            queue.addOperations(operations, waitUntilFinished: true)
            #expect(operations.allSatisfy { $0.succeeded })
            #expect(executing.peak <= maximum)
        }
    }

    @Test func `a queue executes its maximum number of operations at once`() async throws {
        try await withRunLoop { loop in
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = 4
            let operations = (0..<4).map { _ in ScriptedOperation(runLoop: loop) }
            queue.addOperations(operations, waitUntilFinished: false)
            for operation in operations { operation.started.wait() }
            #expect(operations.allSatisfy { $0.isExecuting })
            for operation in operations { operation.finish() }
            queue.waitUntilAllOperationsAreFinished()
        }
    }

    @Test func `an operation begins after its dependencies finish, also across queues`()
        async throws
    {
        try await withRunLoop { loop in
            let log = Trace()
            func make(_ name: String) -> ScriptedOperation {
                ScriptedOperation(runLoop: loop) { operation in
                    log("begin \(name)")
                    Timer.scheduled(after: .milliseconds(1)) { _ in
                        log("end \(name)")
                        operation.finish()
                    }
                }
            }
            let (first, second, last) = (make("1"), make("2"), BlockOperation { log("block") })
            second.addDependency(first)
            last.addDependency(second)
            let (queue, other) = (OperationQueue(), OperationQueue())
            other.addOperation(last)
            queue.addOperations([second, first], waitUntilFinished: true)
            other.waitUntilAllOperationsAreFinished()
            #expect(log.all == ["begin 1", "end 1", "begin 2", "end 2", "block"])
        }
    }

    // MARK: Misuse

    @Test func `starting an operation twice traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let operation = ScriptedOperation()
            operation.start()
            operation.start()
        }
        #expect(result.message.contains("RunLoopOperation.start() was called twice."))
    }

    @Test func `starting before the dependencies have finished traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let operation = ScriptedOperation()
            operation.addDependency(ScriptedOperation())
            operation.start()
        }
        #expect(result.message.contains("before the operation's dependencies had finished"))
    }
}
