import Reactor

/// What has come of all files.
struct Totals {
    /// The files of which anything was read, or that are empty.
    private var fileCount = 0
    private var lineCount = 0
    private var byteCount = 0
    private var longestLine = 0
    private var invalidLineCount = 0
    private var seconds = 0.0
    private var peakHeap = 0
    private var tickCount = 0
    private var tickLateness = 0

    /// Adds what was read of a file: all of it, or what came before a fault or a signal.
    mutating func add(_ report: HandoffReport<LineReader<LineVisitor>.Output>) {
        let output = report.output
        lineCount += output.lineCount
        longestLine = max(longestLine, output.longestLine)
        invalidLineCount += output.value.invalidLineCount
        byteCount += output.byteCount
        if case .failed = report.ending, output.byteCount == 0 { return }
        fileCount += 1
    }

    mutating func finish(_ time: Duration, _ heartbeat: Heartbeat) {
        seconds = (time / .microseconds(1)).rounded() / 1_000_000
        peakHeap = heartbeat.peakHeap
        tickCount = heartbeat.tickCount
        tickLateness = heartbeat.lateness.percentile(99)
    }

    var json: String {
        let members: [(String, any CustomStringConvertible)] = [
            ("files", fileCount), ("lines", lineCount), ("bytes", byteCount),
            ("longest_line_bytes", longestLine), ("invalid_utf8_lines", invalidLineCount),
            ("seconds", seconds), ("peak_heap_bytes", peakHeap),
            ("ticks", tickCount), ("tick_lateness_p99_us", tickLateness),
        ]
        return "{\(members.map { "\"\($0)\":\($1)" }.joined(separator: ","))}"
    }

    var summary: String {
        let files = fileCount == 1 ? "1 file" : "\(fileCount) files"
        let rate = seconds > 0 ? Int(Double(byteCount) / seconds) : 0
        return """
            \(lineCount) lines, \(byteCount.inMegabytes) MB in \(files); \
            \(seconds) s, \(rate.inMegabytes) MB/s
            longest line \(longestLine) bytes, \(invalidLineCount) lines not UTF-8
            peak heap \(peakHeap / 1000) KB; \(tickCount) ticks of the loop's 10 ms timer, \
            99 % at most \(tickLateness) µs late
            """
    }
}
