// idle-reactor  The smallest program: one timer of 10 ms.

import Reactor

Timer.scheduled(after: .milliseconds(10)) { _ in RunLoop.current.stop() }
RunLoop.current.run(in: .default)
