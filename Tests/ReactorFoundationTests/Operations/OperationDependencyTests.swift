import Dispatch
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct OperationDependencyTests {
    @Test func `a cancelled operation is released only after the operation that it depends on has finished`()
        async throws
    {
        try await withRunLoop { loop in
            let (operation, queue) = (ScriptedOperation(runLoop: loop), OperationQueue())
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
            operation.start()
            operation.started.wait()
            operation.finish()
            waitUntil { dependent == nil }
        }
    }

    @Test func `a removed dependency does not keep the operation that depended on it`() async throws {
        let operation = ScriptedOperation()
        weak var dependent: BlockOperation?
        do {
            let end = BlockOperation {}
            dependent = end
            end.addDependency(operation)
            end.removeDependency(operation)
        }
        #expect(dependent == nil)
    }

    @Test func `a cancelled operation removes its dependencies before it finishes`() async throws {
        try await withRunLoop { loop in
            let (dependency, operation) = (BlockOperation {}, ScriptedOperation(runLoop: loop))
            operation.addDependency(dependency)
            operation.cancel()
            operation.start()
            #expect(operation.isFinished && operation.dependencies.isEmpty)
            dependency.start()
        }
    }
}
