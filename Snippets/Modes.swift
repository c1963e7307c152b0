import Reactor

let loop = RunLoop.current
Timer.scheduled(every: .milliseconds(100)) { _ in print("default: not during the drag") }
Timer.scheduled(every: .milliseconds(100), forMode: .common) { _ in print("common: also during the drag") }

// For half a second, as if the user dragged an object, the loop runs in the tracking mode.
Timer.scheduled(after: .milliseconds(250)) { _ in
    print("drag begins")
    loop.run(in: .tracking, until: .now.advanced(by: .milliseconds(500)))
    print("drag ends")
}
loop.run(in: .default, until: .now.advanced(by: .seconds(1)))
