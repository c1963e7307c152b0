// lines-reactor FILE [string|tasks]  Delivers every line of FILE, as borrowed bytes, as a String, or as a String to
//                                    `for await` on the main actor, beside a 10 ms timer: cpu-s/GB GB/s tick-lateness-p99-us

import Dispatch
import Glibc
import Measuring
import Reactor

struct Totals: Sendable {
    var lines = 0
    var bytes = 0
}

let path = FilePath(CommandLine.arguments[1])
let queue = DispatchQueue(label: "lines")
let begin = now()
var lateness: [Int64] = []
let ticker = Timer.scheduled(every: .milliseconds(10), forMode: .common) { timer in
    lateness.append(now() - timer.fireDate.uptimeNanoseconds)
}

@MainActor
func report(_ ending: String, _ totals: Totals) {
    let bytes = Double(totals.bytes)
    let wall = Double(now() - begin)
    let late = percentile(99, of: lateness.sorted())
    print(Double(processorTime()) / bytes, bytes / wall, Double(late) / 1e3)
    exit(ending == "finished" && totals.lines > 0 ? 0 : 1)
}

if CommandLine.arguments.last == "tasks" {
    Task {
        var totals = Totals()
        for try await line in InputStream(path: path).lines {
            totals.lines += 1
            totals.bytes += line.utf8.count + 1
        }
        report("finished", totals)
    }
} else if CommandLine.arguments.count > 2 {
    let reader = LineReader(InputStream(path: path), text: .repair, into: Totals(), on: queue) {
        totals, bytes, line in
        totals.lines += 1
        totals.bytes += bytes.utf8.count + line.terminatorLength
    }
    reader.start { report("\($0.ending)", $0.output.value) }
} else {
    let reader = LineReader(InputStream(path: path), into: Totals(), on: queue) { totals, bytes, line in
        totals.lines += 1
        totals.bytes += bytes.byteCount + line.terminatorLength
    }
    reader.start { report("\($0.ending)", $0.output.value) }
}
RunLoop.main.run(in: .default)
