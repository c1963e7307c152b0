import Glibc
import Reactor

/// Shows a list on a terminal: draws on the main loop what workers compute.
///
/// While a key is held or the mouse drags, the loop runs in the tracking mode, and serves only what is in the
/// common modes: input, signals, rows that arrive, drawing, and one of the header's two clocks. The other
/// clock stands still.
final class Scroller {
    private let loop = RunLoop.current
    private let terminal: TerminalScreen
    private let source: any Rows
    /// For how long after a key the loop tracks.
    private let hold: Duration
    private let workers: RowWorkers

    private var parser = TerminalParser()
    private var viewport = Viewport()
    /// The rows that are in sight and computed.
    private var texts: [Int: String] = [:]
    private var needsDisplay = true

    private let start = Deadline.now
    /// The seconds of the two clocks.
    private var defaultTime = 0.0
    private var commonTime = 0.0

    /// Until when the loop tracks.
    private var trackingEnd = Deadline.distantPast
    /// The row under the mouse while it drags the list; nil while it does not drag, or drags the scroll bar.
    private var draggedRow: Int?
    /// Set when the program ends.
    private var exitCode: CInt?

    init(_ terminal: TerminalScreen, showing source: any Rows, hold: Duration) {
        self.terminal = terminal
        self.source = source
        self.hold = hold
        workers = RowWorkers(source, for: loop)
    }

    /// Runs until a key, a signal or the end of the terminal ends the program.
    ///
    /// - Returns: The exit code.
    func run() throws -> CInt {
        // Others do what they do by default; the terminal is restored then.
        try handle(.windowSizeChange) { [self] in needsDisplay = true }
        try handle(.resume) { [self] in
            endTracking()  // the release of the mouse's button has gone elsewhere
            needsDisplay = true
        }
        try terminal.use { runLoop() }
        return exitCode ?? 0
    }

    private func handle(_ signal: Signal, _ handler: @escaping () -> Void) throws(IOError) {
        try loop.add(SignalSource(signal) { _, _ in handler() }, forMode: .common)
    }

    private func runLoop() {
        for stream in [terminal.input, terminal.output] {
            stream.delegate = self
            stream.schedule(in: loop, forMode: .common)
            stream.open()
        }
        startClocks()
        // As in Cocoa, all changes of a pass are drawn at once, before the loop sleeps.
        let observer = RunLoop.Observer(for: .beforeWaiting) { [self] _, _ in display() }
        loop.add(observer, forMode: .common)
        while exitCode == nil { loop.run(in: .default) }
        workers.want([])
    }

    /// Draws again when more rows have been found.
    func rowsChanged() { needsDisplay = true }

    private func startClocks() {
        Timer.scheduled(every: .milliseconds(100), forMode: .default) { [self] _ in
            defaultTime = elapsed
            needsDisplay = true
        }
        Timer.scheduled(every: .milliseconds(100), forMode: .common) { [self] _ in
            commonTime = elapsed
            needsDisplay = true
        }
    }

    private var elapsed: Double { (start.duration(to: .now) / .milliseconds(100)).rounded(.down) / 10 }

    private func end(_ code: CInt) {
        exitCode = exitCode ?? code
        loop.stop()
    }

    // MARK: Tracking

    private func handle(_ events: [TerminalEvent]) {
        for event in events { handle(event) }
        needsDisplay = true
        // Not here: the stream delivers no events while its delegate is being called.
        if trackingEnd > .now, loop.currentMode != .tracking {
            Timer.scheduled(after: .zero) { [self] _ in track() }
        }
    }

    /// Runs the loop in the tracking mode until the mouse's button is released, or no key has followed for a
    /// moment.
    private func track() {
        while trackingEnd > .now, exitCode == nil { loop.run(in: .tracking, until: trackingEnd) }
        draggedRow = nil
        needsDisplay = true
        if exitCode != nil { loop.stop() }
    }

    private func endTracking() {
        trackingEnd = .distantPast
        if loop.currentMode == .tracking { loop.stop() }
    }

    private func handle(_ event: TerminalEvent) {
        switch event {
        case .character(UInt8(ascii: "q")): return end(0)
        case .character: return
        case .press(let line, let column): return press(line, column)
        case .drag(let line, _): return drag(line)
        case .release: return endTracking()
        case .up: viewport.scroll(by: -1)
        case .down: viewport.scroll(by: 1)
        case .pageUp: viewport.scroll(by: -viewport.height)
        case .pageDown: viewport.scroll(by: viewport.height)
        case .home: viewport.scroll(to: 0)
        case .end: viewport.scroll(to: viewport.count)
        case .wheel(let lines): viewport.scroll(by: lines)
        }
        trackingEnd = .now.advanced(by: hold)
    }

    private func press(_ line: Int, _ column: Int) {
        trackingEnd = .distantFuture
        let isOnBar = column == terminal.size.columns
        draggedRow = isOnBar ? nil : viewport.top + line
        if isOnBar { drag(line) }
    }

    private func drag(_ line: Int) {
        if let draggedRow {
            viewport.scroll(to: draggedRow - line)
        } else {
            viewport.scroll(toBarLine: line - 2)
        }
    }

    // MARK: Drawing

    private func display() {
        let computed = workers.takeComputed()
        texts.merge(computed) { $1 }
        if !computed.isEmpty { needsDisplay = true }
        // A terminal that is behind gets only the latest screen.
        guard needsDisplay, terminal.isForeground, terminal.output.hasSpaceAvailable else { return }
        needsDisplay = false
        let size = terminal.size
        viewport.count = source.count
        viewport.height = max(0, size.lines - 1)
        let rows = viewport.rows
        texts = texts.filter { rows.contains($0.key) }
        workers.want(rows.filter { texts[$0] == nil })
        _ = terminal.output.write(Screen(size, header, viewport, texts).text)
    }

    private var header: String {
        let mode = loop.currentMode == .tracking ? "tracking" : "default "
        let (first, last) = (viewport.rows.isEmpty ? 0 : viewport.top + 1, viewport.rows.upperBound)
        return "default \(defaultTime) s  common \(commonTime) s  mode \(mode)  "
            + "\(first)-\(last) of \(viewport.count)  \(workers.droppedCount) dropped"
    }
}

extension Scroller: StreamDelegate {
    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: handle(parser.events(of: terminal.input.read(upTo: 4_096)))
        // The terminal has gone.
        case .endEncountered, .errorOccurred: end(128 + SIGHUP)
        default: break
        }
    }
}
