// await-reactor KIND N  Takes N elements of 64 bytes from a pipe, each written when the one before was read:
//                       cpu-ns/element ns/element
//
// delegate: a stream's delegate reads; source: a descriptor source's handler; loop, main, pool: `for await` over a
// descriptor's readiness, in an actor of the loop, on the main actor of the main loop, on the pool.

import Glibc
import Measuring
import Reactor

let (count, _, _) = numbers(from: 2)
let pipe = ElementPipe(count: count)
switch CommandLine.arguments[1] {
case "delegate":
    let reader = DelegateReader(pipe)
    RunLoop.main.run(in: .default)
    withExtendedLifetime(reader) {}
case "source":
    try pipe.serve()
    RunLoop.main.run(in: .default)
case "main":
    Task { @MainActor in await pipe.consume(on: .main) }
    runMainLoop()
case "chunks":
    let consumer = Consumer(on: .main)
    Task.detached { await consumer.consumeChunks(pipe) }
    runMainLoop()
case "pool":
    let thread = try RunLoopThread(name: "loop")
    Task.detached { await pipe.consume(on: thread.runLoop) }
    while true { sleep(1000) }
case "preference":
    Task.detached(executorPreference: RunLoop.main.executor()) { await pipe.consume(on: .main) }
    runMainLoop()
default:
    let consumer = Consumer(on: .main)
    Task.detached { await consumer.consume(pipe) }
    runMainLoop()
}

func runMainLoop() { while true { RunLoop.main.run(in: .default) } }
