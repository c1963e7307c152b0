import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DescriptionTests {
    private let loop = RunLoop.current

    @Test func `a dump has a line for every item of every mode, with its label and state`() throws {
        let pipe = try TestPipe()
        Timer.scheduled(every: .seconds(100), forMode: .custom, tolerance: .seconds(3), label: "heartbeat") {
            _ in
        }
        Timer.scheduled(after: .zero, label: "late") { _ in }.fireDate.busyWait()
        let source = RunLoop.Source(order: 7, label: "inbox") {}
        loop.add(source, forMode: .common)
        source.signal()
        loop.add(
            RunLoop.Observer(for: [.entry, .beforeWaiting], order: -2, label: "probe") { _, _ in },
            forMode: .default)
        let descriptor = DescriptorSource(pipe.readEnd, for: .readable, label: "pipe") { _, _ in }
        try loop.add(descriptor, forMode: .default)
        let input = InputStream(path: "/etc/passwd")
        input.label = "users"
        input.schedule(in: loop, forMode: .default)
        input.open()
        loop.perform(inModes: [.inner]) {}
        let dump = loop.debugDescription
        input.close()
        let lines = dump.split(separator: "\n")
        for parts in [
            ["'heartbeat'", "100.0", "3.0"], ["'late'", "overdue"], ["'inbox'", "7", "signalled"],
            ["'probe'", "entry", "beforeWaiting", "-2"], ["'pipe'", "\(pipe.readEnd.rawValue)", "readable"],
            ["'users'", "/etc/passwd"], ["inbox", "1 blocks"], ["mode 'custom'"],
            ["common modes", "default", "tracking"],
        ] {
            #expect(
                lines.contains { line in parts.allSatisfy { line.contains($0) } }, "\(parts) in:\n\(dump)")
        }
    }
}
