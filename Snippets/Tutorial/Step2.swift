import Reactor

// Prints the lines that are appended to the log.
let tail = try ChildProcess.spawn(.init("tail", ["-F", "-n", "0", "ticks.log"], standardOutput: .stream))
for try await line in tail.standardOutput!.lines { print("new:", line) }
