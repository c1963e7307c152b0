import Dispatch
import Reactor

// Finds the longest line of a file. Shows progress on the loop; Ctrl-C cancels.
let path = CommandLine.arguments.dropFirst().first ?? "/etc/services"
let input = InputStream(path: .init(path))
let reader = LineReader(input, into: 0, on: DispatchQueue(label: "lines")) { longest, line, _ in
    longest = max(longest, line.byteCount)
}

let interrupt = try SignalSource(.interrupt) { _, _ in reader.cancel() }
try RunLoop.current.add(interrupt, forMode: .common)

func show(_ progress: HandoffProgress) {
    let total = progress.expectedByteCount.map { " of \($0)" } ?? ""
    print("\(progress.byteCount)\(total) bytes")
}
reader.start(progress: show) { report in
    let output = report.output
    print("\(report.ending): the longest of \(output.lineCount) lines has \(output.value) bytes")
    RunLoop.current.stop()
}
RunLoop.current.run(in: .default)
