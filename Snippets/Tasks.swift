import Reactor

// Counts seconds until Ctrl-C. Everything runs on the main thread: the main loop serves it while this code awaits.
try await RunLoop.main.withGracefulShutdown(grace: .zero) { _ in
    var seconds = 0
    for await _ in RunLoop.main.ticks(every: .seconds(1), tolerance: .milliseconds(100)) {
        seconds += 1
        print(seconds)
    }
    print("counted \(seconds)")
}
