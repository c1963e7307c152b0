// idle-reactor [SECONDS]  the smallest program: one timer of 10 ms, or of SECONDS, and the end

import Reactor


Timer.scheduled(after: .milliseconds(10)) { _ in RunLoop.current.stop() }
RunLoop.current.run(in: .default)
