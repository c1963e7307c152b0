import Dispatch
// What only an asynchronous main function can do: each scenario prints what happened, and a test compares it.
@preconcurrency import Glibc
import Reactor

setvbuf(stdout, nil, _IONBF, 0)

/// The process's first thread: nothing has been awaited yet.
nonisolated let mainThread = pthread_self()

nonisolated func isMainThread() -> Bool { pthread_equal(pthread_self(), mainThread) != 0 }

@MainActor func printPlace(_ name: String) {
    print(name, isMainThread(), RunLoop.main.isCurrent, RunLoop.main.currentMode == .default)
}

/// Where the main actor's code runs, and what the main loop serves.
@MainActor func staysOnMainThread() async throws {
    print("at first", isMainThread())
    await Task.yield()
    printPlace("after yield")
    try await Task.sleep(for: .milliseconds(1))
    printPlace("after sleep")
    await Task.detached { await printPlace("after a detached task") }.value
    await withCheckedContinuation { continuation in
        RunLoop.main.add(Timer(interval: .zero) { _ in continuation.resume() }, forMode: .default)
    }
    printPlace("after a timer")
    await withCheckedContinuation { continuation in
        DispatchQueue.global().async { DispatchQueue.main.async { continuation.resume() } }
    }
    printPlace("after the main queue")
    RunLoop.main.stop()
    try await Task.sleep(for: .milliseconds(1))
    printPlace("after stop")
}

/// The runtime's own main thread, without the loop.
@MainActor func leavesMainThread() async throws {
    RunLoop.runsInAsyncMain = false
    try await Task.sleep(for: .milliseconds(1))
    print(RunLoop.main.currentMode == nil)
}

switch CommandLine.arguments.last {
case "stays": try await staysOnMainThread()
case "leaves": try await leavesMainThread()
default: exit(2)
}
print("over")
