import Reactor
import SystemPackage

/// Reads a descriptor on a thread and a loop of its own.
actor Reader {
    private let loop: RunLoop
    private let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(on thread: RunLoopThread) { (loop, executor) = (thread.runLoop, thread.executor) }

    /// How many bytes come before the end. The kernel is asked only while the task waits.
    func count(of descriptor: FileDescriptor) async throws -> Int {
        var total = 0
        for try await _ in loop.readiness(of: descriptor, for: .readable) {
            let count = try withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 1) {
                try descriptor.read(into: $0)
            }
            guard count > 0 else { break }
            total += count
        }
        return total
    }
}

try await withRunLoopThread(name: "reader") { thread in
    let reader = Reader(on: thread)
    let total = try await thread.runLoop.clock().withDeadline(.now + .seconds(60)) {
        try await reader.count(of: .standardInput)
    }
    print("\(total) bytes")
}
