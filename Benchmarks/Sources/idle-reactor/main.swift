// idle-reactor [SECONDS]  the smallest program: one timer of 10 ms, or of SECONDS, and the end

import Reactor

let seconds = CommandLine.arguments.count > 1 ? Int(CommandLine.arguments[1]) : nil
Timer.scheduled(after: seconds.map { .seconds($0) } ?? .milliseconds(10)) { _ in RunLoop.current.stop() }
RunLoop.current.run(in: .default)
