import Reactor

// The output of a child process, a timer and Ctrl-C, on one thread. They share `count` without a lock.
var count = 0
let script = "for step in fetch unpack build; do sleep 1; echo $step; done"
let child = try ChildProcess.spawn(.init("sh", ["-c", script], standardOutput: .stream))

let clock = Timer.scheduled(every: .milliseconds(400)) { _ in print("  \(count) of 3 done") }
let interrupt = try SignalSource(.interrupt) { _, _ in try? child.process.send(.terminate) }
try RunLoop.main.add(interrupt, forMode: .common)

for try await step in child.standardOutput!.lines {
    count += 1
    print(step)
}
clock.invalidate()
print("The child has \(try await RunLoop.main.termination(of: child.process).reason).")
