package import Reactor
package import SystemPackage
import Testing

/// A pipe whose ends are closed with it, unless that was done before, or a stream closes them.
package final class TestPipe: Sendable {
    package let readEnd: FileDescriptor
    package let writeEnd: FileDescriptor
    /// The ends that are still to be closed.
    private let owned: Shared<Set<FileDescriptor>>

    package init(_ text: String = "") throws {
        (readEnd, writeEnd) = try FileDescriptor.pipe()
        owned = Shared([readEnd, writeEnd])
        put(text)
    }

    deinit { for end in [readEnd, writeEnd] { close(end) } }

    package func close(_ end: FileDescriptor) {
        if owned.update({ $0.remove(end) }) != nil { try? end.close() }
    }

    package func closeWriteEnd() { close(writeEnd) }

    /// A stream that closes the read end.
    package func makeInput() -> InputStream {
        InputStream(descriptor: give(readEnd), closeWhenDone: true)
    }

    /// A stream that closes the write end.
    package func makeOutput() -> OutputStream {
        OutputStream(descriptor: give(writeEnd), closeWhenDone: true)
    }

    /// Leaves it to the caller to close an end.
    package func give(_ end: FileDescriptor) -> FileDescriptor {
        owned.update { _ = $0.remove(end) }
        return end
    }

    package func put(_ count: Int = 1) { _ = try? writeEnd.writeAll(repeatElement(0, count: count)) }

    package func put(_ text: String) { #expect((try? writeEnd.writeAll(text.utf8)) == text.utf8.count) }

    package func get() {
        var byte: UInt8 = 0
        _ = withUnsafeMutableBytes(of: &byte) { try? readEnd.read(into: $0) }
    }
}

extension DescriptorSource {
    /// Traces `name` whenever `pipe` has something to read, and reads one byte of it.
    package convenience init(_ pipe: TestPipe, _ trace: Trace, _ name: String) {
        self.init(pipe.readEnd, for: .readable) { _, _ in
            pipe.get()
            trace(name)
        }
    }
}

extension Deadline {
    package static func after(milliseconds: Int) -> Deadline {
        .now.advanced(by: .milliseconds(milliseconds))
    }
}

extension RunLoop.Mode {
    package static let custom = RunLoop.Mode("custom")
}

extension RunLoop {
    /// Keeps `mode` from being empty, with something that never happens.
    @discardableResult
    package func hold(_ mode: Mode) -> Source {
        let source = Source {}
        add(source, forMode: mode)
        return source
    }

    package func observe(
        _ activities: Activities = .all, in mode: Mode = .default, order: Int = 0,
        _ handler: @escaping (Activities) -> Void
    ) {
        let observer = Observer(for: activities, order: order) { _, activity in handler(activity) }
        add(observer, forMode: mode)
    }

    /// Polls the default mode, or another, once.
    @discardableResult
    package func poll(_ mode: Mode = .default) -> RunResult { run(in: mode, until: .distantPast) }
}

/// A stream delegate that calls a closure.
package final class HandlerDelegate: StreamDelegate {
    private let handler: (Stream, Stream.Event) -> Void

    package init(_ handler: @escaping (Stream, Stream.Event) -> Void) { self.handler = handler }

    package func stream(_ stream: Stream, handle event: Stream.Event) { handler(stream, event) }
}

/// Starts a program whose every step leads to the next, so that it has one order of callbacks only. The last step stops the
/// loop.
///
/// - Returns: What to keep until then.
package func startTracedProgram(on loop: RunLoop, _ trace: Trace) throws -> [AnyObject] {
    let pipe = try TestPipe()
    loop.observe(in: .default) { trace("\($0)") }
    loop.observe(in: .tracking) { trace("tracking \($0)") }
    let signalled = RunLoop.Source {
        trace("signalled source")
        Timer.scheduled(after: .zero, forMode: .tracking) { _ in
            trace("tracking timer")
            loop.stop()
        }
        loop.run(in: .tracking)
        loop.perform { pipe.put() }
    }
    loop.add(signalled, forMode: .default)
    let (input, output) = Stream.boundPair(bufferSize: 16)
    let startTimer = {
        _ = Timer.scheduled(after: .milliseconds(1)) { _ in
            trace("timer")
            loop.perform(inModes: [.default]) {
                trace("block")
                signalled.signal()
            }
        }
    }
    let delegate = HandlerDelegate { stream, event in
        trace("\(event)")
        if event == .openCompleted { startTimer() }
        guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
        trace("read \(input.read(upTo: 16).count)")
        loop.stop()
    }
    input.delegate = delegate
    input.schedule(in: loop, forMode: .default)
    input.open()
    output.open()
    let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        trace("descriptor")
        pipe.get()
        source.cancel()
        _ = output.write([1, 2, 3])
    }
    try loop.add(source, forMode: .common)
    return [delegate, input, output]
}
