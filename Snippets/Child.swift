import Dispatch
import Reactor

// Starts a program, prints its output line by line, as the lines arrive, and then how it has ended.
let child = try ChildProcess.spawn(
    .init("sh", ["-c", "for i in 1 2 3; do echo $i; sleep 1; done"], standardOutput: .stream))

let lines = DispatchQueue(label: "lines")
let reader = LineReader(child.standardOutput!, text: .repair, into: (), on: lines) { _, text, line in
    print(line.number, text)
}
reader.start { report in
    print("\(report.output.lineCount) lines, \(report.ending)")
    let end = ProcessSource(child.process) { _, termination in
        print("\(termination.reason), \(termination.userTime) of processor time")
        RunLoop.current.stop()
    }
    try? RunLoop.current.add(end, forMode: .default)
}
RunLoop.current.run(in: .default)
