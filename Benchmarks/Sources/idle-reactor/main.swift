// idle-reactor  the smallest program: one timer of 10 ms, and the end

import Reactor

Timer.scheduled(after: .milliseconds(10)) { _ in RunLoop.current.stop() }
RunLoop.current.run(in: .default)
