// still-reactor SECONDS  A loop that waits for a single timer, for strace(1).

import Reactor

guard let seconds = CommandLine.arguments.dropFirst().first.flatMap({ Int($0) }) else {
    fatalError("usage: still-reactor SECONDS")
}
Timer.scheduled(after: .seconds(seconds)) { _ in RunLoop.current.stop() }
RunLoop.current.run(in: .default)
