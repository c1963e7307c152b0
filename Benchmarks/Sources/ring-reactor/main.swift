// ring-reactor N A W [streams]  Watches N pipes with descriptor sources or streams. A of them hold a byte; each of W
//                               callbacks reads one byte and writes one to the next pipe: cpu-ns/event ns/event ns/watch

import Measuring
import Reactor

let (count, active, events) = numbers(from: 1)
let ring = Ring(count: count, active: active, events: events)
let start = now()
if CommandLine.arguments.last == "streams" { ring.openStreams() } else { try ring.watch() }
ring.fill()
ring.start = start
RunLoop.current.run(in: .default)
