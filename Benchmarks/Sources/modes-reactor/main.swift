// modes-reactor N W  Enters another mode from a callback and leaves it, W times, with N timers, N signalled sources and
//                    N descriptors in the default mode: cpu-ns/entry ns/entry

import Measuring
import Reactor
import SystemPackage

let (count, entries, _) = numbers(from: 1)
let loop = RunLoop.current
let dialog = RunLoop.Mode("dialog")

allowDescriptors(count + 200)
let silent = try FileDescriptor.pipe().readEnd
for _ in 0..<count {
    Timer.scheduled(after: .seconds(1000)) { _ in }
    loop.add(RunLoop.Source {}, forMode: .default)
    try loop.add(DescriptorSource(silent.duplicate(), for: .readable) { _, _ in }, forMode: .default)
}
loop.add(RunLoop.Source {}, forMode: dialog)  // run(in:) returns at once in an empty mode

loop.perform {
    let loop = RunLoop.current
    for _ in 0..<1000 { loop.run(in: dialog, until: .distantPast) }
    let (wall, processor) = (now(), processorTime())
    for _ in 0..<entries { loop.run(in: dialog, until: .distantPast) }
    report([processorTime() - processor, now() - wall].map { fixed(Double($0) / Double(entries)) })
}
loop.run(in: .default)
