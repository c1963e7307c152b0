import Reactor

// Counts seconds until Ctrl-C. Everything runs on the main thread: the main loop serves it while this code awaits.
let interrupts = Task {
    for try await _ in try RunLoop.main.signals([.interrupt, .terminate]) { return }
}
let counting = Task {
    var seconds = 0
    for await _ in RunLoop.main.ticks(every: .seconds(1), tolerance: .milliseconds(100)) {
        seconds += 1
        print(seconds)
    }
    print("counted \(seconds)")
}
try await interrupts.value
counting.cancel()
await counting.value
