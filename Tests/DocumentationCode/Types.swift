// The examples of the main types in their documentation comments. scripts/check-code compares it with them; compiling it is
// the test.

import Dispatch
import Glibc
import Reactor
import SystemPackage

private final class Echo: ConnectionDelegate {
    func connection(_ connection: Connection, handle event: Connection.Event) {}
}

private func connections(_ host: String) async throws {
    let connection = try await Connection.connect(toHost: "example.org", port: 80)
    try await connection.write("HEAD / HTTP/1.0\r\n\r\n")
    for try await line in connection.lines() { print(line) }
    connection.close()
}

private func backoffs(_ clock: RunLoop.Clock, _ converse: (() -> Void) async throws -> Void) async throws {
    var backoff = Backoff()
    while true {
        do {
            try await converse { backoff.reset() }
        } catch let error as IOError {
            print(error)
        }
        try await clock.sleep(for: backoff.nextDelay())
    }
}

private final class Printer: StreamDelegate {
    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: print((stream as? InputStream)?.read(upTo: 4096) ?? [])
        case .endEncountered, .errorOccurred: stream.close()
        default: break
        }
    }
}

private func connections() async throws {
    let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7), acceptErrors: { print($0) })
    try await connections.run { connection in
        for try await chunk in connection.chunks() { try await connection.write(chunk) }
    }
}

private func streamLines() async throws {
    for try await line in InputStream(path: "/var/log/syslog").lines where line.contains("error") {
        print(line)
    }
}

private func handoffs() {
    struct ByteCount: ChunkProcessor {
        var output = 0
        mutating func process(_ chunk: RawSpan) { output += chunk.byteCount }
    }

    let input = InputStream(path: "/var/log/syslog")
    let handoff = ChunkHandoff(input, to: ByteCount(), on: DispatchQueue(label: "count"))
    handoff.start { report in
        print(report.output, "after", report.byteCount, "bytes")
        RunLoop.current.stop()
    }
    RunLoop.current.run(in: .default)

    let (log, queue) = (InputStream(path: "/var/log/syslog"), DispatchQueue(label: "lines"))
    let reader = LineReader(log, into: 0, on: queue) { count, line, place in
        if line.byteCount > 80 { count += 1 }
    }
    reader.start { report in
        print(report.output.value, "of", report.output.lineCount, "lines are long")
        RunLoop.current.stop()
    }
    RunLoop.current.run(in: .default)
}

private func runLoops() throws {
    LoopDiagnostics.isDebugging = true
    LoopDiagnostics.setReportHandler { report in print("event loop:", report.text) }

    let answers = Mailbox<[UInt8]> { _, answer in print(answer.count, "bytes") }
    DispatchQueue.global().async {
        for number in 1...3 { answers.post(Array("\(number)\n".utf8)) }
    }

    let idle = RunLoop.Observer(for: [.beforeWaiting, .exit]) { _, activity in print(activity) }
    RunLoop.current.add(idle, forMode: .common)

    let before = RunLoop.main.statistics
    // …
    let wakeUps = RunLoop.main.statistics.wakeUps - before.wakeUps
    print(wakeUps == 0 ? "idle" : "woken \(wakeUps) times")

    let loop = RunLoop.current
    Timer.scheduled(after: .seconds(1)) { _ in loop.stop() }
    DispatchQueue.global().async {
        loop.perform { print("on the loop's thread") }
    }
    loop.run(in: .default)

    let redraw = RunLoop.Source { print("draw") }
    RunLoop.main.add(redraw, forMode: .common)
    redraw.signal()
    RunLoop.main.wakeUp()

    let interrupt = try SignalSource(.interrupt) { source, _ in
        print("stopping")
        source.cancel()
    }
    try RunLoop.main.add(interrupt, forMode: .common)
}

private func sockets() throws {
    let server = try DatagramSocket(boundTo: .ipv6Any(port: 7)) { socket, bytes, metadata in
        guard let sender = metadata.sender else { return }
        _ = try? socket.send(bytes, to: sender)
    } events: { _, event in
        print(event)
    }
    try RunLoop.current.add(server, forMode: .default)

    let listener = try Listener(.ipv6Any(port: 7)) { _, connection in
        connection.open(delegate: Echo())
    } acceptErrors: { _, error in
        print(error)  // accept at [::]:7: Too many open files
    }
    try RunLoop.current.add(listener, forMode: .common)
    print("listening on \(listener.localAddress)")
}

private func inputStream() {
    final class Counter: StreamDelegate {
        func stream(_ stream: Stream, handle event: Stream.Event) {
            guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
            let bytes = input.read(upTo: 4096)
            print("\(bytes.count) bytes")
        }
    }
    let input = InputStream(descriptor: .standardInput)
    let counter = Counter()
    input.delegate = counter
    input.schedule(in: .current, forMode: .default)
    input.open()
}

private func streams() {
    let output = OutputStream(path: "report.txt")
    output.open()
    _ = output.write("done\n")
    output.close()

    let input = InputStream(path: "/etc/services")
    let printer = Printer()  // to be kept: the stream refers to it weakly
    input.delegate = printer
    input.schedule(in: .current, forMode: .default)
    input.open()
}

private func systemEvents() throws {
    let alarm = try ClockTimer(.wallClock, at: ClockTimer.Clock.wallClock.now + .seconds(3600)) {
        timer, event in
        print(event)
    }
    try RunLoop.current.add(alarm, forMode: .default)

    let watcher = try FileWatcher { _, event in print(event) }
    try watcher.watch("/etc", recursively: true)
    try watcher.watch("settings.json")
    try RunLoop.current.add(watcher, forMode: .default)

    let child = try ChildProcess.spawn(.init("make", ["all"]))
    let source = ProcessSource(child.process) { _, termination in
        print(termination.reason)
    }
    try RunLoop.current.add(source, forMode: .default)
}

private func timers() {
    let clock = Timer.scheduled(every: .seconds(1), forMode: .common, tolerance: .milliseconds(100)) { _ in
        print("tick")
    }
    clock.invalidate()

    Timer.scheduled(after: .seconds(5)) { _ in print("five seconds have passed") }

    let ticker = Timer.scheduled(every: .milliseconds(10), forMode: .common) { _ in print("tick") }
    ticker.invalidate()
}
