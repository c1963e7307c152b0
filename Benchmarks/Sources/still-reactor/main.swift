// still-reactor SECONDS  a loop that has nothing to do but one timer, that long; for strace(1)

import Reactor

guard let seconds = CommandLine.arguments.dropFirst().first.flatMap({ Int($0) }) else {
    fatalError("how many seconds?")
}
Timer.scheduled(after: .seconds(seconds)) { _ in RunLoop.current.stop() }
RunLoop.current.run(in: .default)
