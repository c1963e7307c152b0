import Reactor

// Starts a program, prints its output line by line, as the lines arrive, and then how it has ended, in a task.
let child = try ChildProcess.spawn(
    .init("sh", ["-c", "for i in 1 2 3; do echo $i; sleep 1; done"], standardOutput: .stream))
for try await line in child.standardOutput!.lines { print(line) }
let termination = try await RunLoop.main.termination(of: child.process)
print("\(termination.reason), \(termination.userTime) of processor time")
