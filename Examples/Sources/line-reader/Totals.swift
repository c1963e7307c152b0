import ExampleSupport
import Reactor

/// The results of all files.
struct Totals {
    private var files: [FileTotals] = []
    private var seconds = 0.0
    private var peakHeap = 0
    private var tickCount = 0
    private var tickLateness = 0
    /// The name of the signal that ended the program, if any.
    private var signal: String?

    mutating func add(_ file: FileTotals) { files.append(file) }

    mutating func finish(_ time: Duration, _ heartbeat: Heartbeat, signal: String?) {
        seconds = (time / .microseconds(1)).rounded() / 1_000_000
        peakHeap = heartbeat.peakHeap
        tickCount = heartbeat.tickCount
        tickLateness = heartbeat.lateness.percentile(99)
        self.signal = signal
    }

    private func sum(_ count: (FileTotals) -> Int) -> Int { files.reduce(0) { $0 + count($1) } }

    private var fileCount: Int { files.count(where: \.wasStarted) }
    private var lineCount: Int { sum(\.lineCount) }
    private var byteCount: Int { sum(\.byteCount) }
    private var longestLine: Int { files.map(\.longestLine).max() ?? 0 }
    private var invalidLineCount: Int { sum(\.invalidLineCount) }

    var json: String {
        let members: [(String, JSON)] = [
            ("files", .integer(fileCount)), ("lines", .integer(lineCount)), ("bytes", .integer(byteCount)),
            ("longest_line_bytes", .integer(longestLine)), ("invalid_utf8_lines", .integer(invalidLineCount)),
            ("seconds", .real(seconds)), ("peak_heap_bytes", .integer(peakHeap)),
            ("ticks", .integer(tickCount)), ("tick_lateness_p99_us", .integer(tickLateness)),
            ("interrupted", .bool(signal != nil)), ("inputs", .array(files.map(\.json))),
        ]
        return JSON.object(members).description
    }

    var summary: String {
        let rate = seconds > 0 ? Int(Double(byteCount) / seconds) : 0
        return """
            \(incompleteNotice)\(lineCount) lines, \(byteCount.inMegabytes) MB in \(Self.files(fileCount)); \
            \(seconds) s, \(rate.inMegabytes) MB/s
            longest line \(longestLine) bytes, \(invalidLineCount) lines with invalid UTF-8
            peak heap \(peakHeap / 1000) KB; 10 ms timer: \(tickCount) ticks, 99 % at most \(tickLateness) µs late
            """
    }

    /// A line before the totals if not all files were read to the end.
    private var incompleteNotice: String {
        let incomplete = files.count { !$0.isWhole }
        guard signal != nil || incomplete > 0 else { return "" }
        let prefix = signal.map { "Interrupted by \($0): " } ?? ""
        return "\(prefix)\(incomplete) of \(Self.files(files.count)) not read to the end\n"
    }

    private static func files(_ count: Int) -> String { count == 1 ? "1 file" : "\(count) files" }
}
