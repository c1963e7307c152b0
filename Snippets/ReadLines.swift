import Dispatch
import Reactor

// Counts lines on a queue. The loop stays free, and receives the result.
let input = InputStream(path: "/etc/services")
let reader = LineReader(input, into: 0, on: DispatchQueue(label: "lines")) { count, line, _ in
    if line.byteCount > 40 { count += 1 }
}
reader.start { report in
    if case .failed(let error) = report.ending { fatalError("\(error)") }
    print("\(report.output.value) of \(report.output.lineCount) lines are long")
    RunLoop.main.stop()
}
RunLoop.main.run(in: .default)
