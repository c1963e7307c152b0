import Reactor

// Asks for confirmation after the first Ctrl-C. The second one ends the program.
let interrupt = try SignalSource(.interrupt) { source, _ in
    print("\nPress Ctrl-C again to quit.")
    source.cancel()  // restores the previous action of SIGINT
}
try RunLoop.current.add(interrupt, forMode: .common)

Timer.scheduled(every: .seconds(1)) { _ in print("working") }
RunLoop.current.run(in: .default)
