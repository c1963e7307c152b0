import Reactor

let loop = RunLoop.current
Timer.scheduled(every: .milliseconds(100)) { _ in print("default: stands still while the user drags") }
Timer.scheduled(every: .milliseconds(100), forMode: .common) { _ in print("common: goes on") }

// The user drags for half a second: for that long the loop runs in another mode.
Timer.scheduled(after: .milliseconds(250)) { _ in
    print("dragging")
    loop.run(in: .tracking, until: .now.advanced(by: .milliseconds(500)))
    print("dropped")
}
loop.run(in: .default, until: .now.advanced(by: .seconds(1)))
