import Reactor

// Counts three seconds. A timer never fires early, and its dates do not drift.
var seconds = 0
Timer.scheduled(every: .seconds(1)) { _ in
    seconds += 1
    print(seconds)
    if seconds == 3 { RunLoop.current.stop() }
}
RunLoop.current.run(in: .default)
