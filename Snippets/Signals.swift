import Glibc
import Reactor

// Ctrl-C asks once, and ends the program the second time.
let interrupt = try SignalSource(SIGINT) { source, _ in
    print("\nPress Ctrl-C again to quit.")
    source.cancel()  // SIGINT does again what it did before
}
try RunLoop.current.add(interrupt, forMode: .common)

Timer.scheduled(every: .seconds(1)) { _ in print("working") }
RunLoop.current.run(in: .default)
