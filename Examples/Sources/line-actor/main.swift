// Counts the lines of standard input on a thread of its own, while the main thread reports how many there are: line-actor

import ExampleSupport
import Reactor

/// Lives on a thread and its loop: its methods run there, and so do the events that they await.
actor LineCounter {
    private(set) var count = 0
    private let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe executor.asUnownedSerialExecutor() }

    init(on thread: RunLoopThread) { executor = thread.executor }

    func countLines() async throws {
        for try await _ in InputStream(descriptor: .standardInput).lines { count += 1 }
    }
}

do {
    try await withRunLoopThread(name: "lines") { thread in
        let counter = LineCounter(on: thread)
        let reporting = Task {
            for await _ in RunLoop.main.ticks(every: .seconds(1)) {
                MainProgram.printLine("\(await counter.count)")
            }
        }
        try await counter.countLines()
        reporting.cancel()
        await reporting.value
        MainProgram.printLine("\(await counter.count) lines")
    }
} catch {
    MainProgram.end("\(error)")
}
