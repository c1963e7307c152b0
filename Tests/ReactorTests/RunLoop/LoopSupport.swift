import Glibc
import Reactor
import ReactorTesting
import SystemPackage

/// Runs `body` on a thread of its own, with its loop, and returns what it traced.
func traced(_ body: @escaping @Sendable (RunLoop, Trace) throws -> Void) async throws -> [String] {
    try await onItsOwnThread {
        let trace = Trace()
        try body(RunLoop.current, trace)
        return trace.all
    }
}

/// A pipe that lasts as long as its variable.
final class TestPipe: Sendable {
    let readEnd: FileDescriptor
    let writeEnd: FileDescriptor

    init() throws { (readEnd, writeEnd) = try FileDescriptor.pipe() }

    deinit {
        try? readEnd.close()
        try? writeEnd.close()
    }

    func put(_ count: Int = 1) { _ = try? writeEnd.writeAll(repeatElement(0, count: count)) }

    func get() {
        var byte: UInt8 = 0
        _ = withUnsafeMutableBytes(of: &byte) { try? readEnd.read(into: $0) }
    }
}

extension Deadline {
    static func after(milliseconds: Int) -> Deadline { .now.advanced(by: .milliseconds(milliseconds)) }

    /// Later than any test lasts: where it counts, a test asks for what ended the wait.
    static var minutesAway: Deadline { .now.advanced(by: .seconds(120)) }
}

extension VirtualTime {
    /// Moves the clock as a callback does that lasts `duration`: nothing is served meanwhile.
    func pass(_ duration: Duration) { advance(by: duration, inMode: RunLoop.Mode("empty")) }
}

extension RunLoop.Mode {
    static let custom = RunLoop.Mode("custom")
    static let outer = RunLoop.Mode("outer")
    static let inner = RunLoop.Mode("inner")
}

extension RunLoop {
    /// Keeps `mode` from being empty, with something that never happens.
    @discardableResult
    func hold(_ mode: Mode) -> Source {
        let source = Source {}
        add(source, forMode: mode)
        return source
    }

    func observe(
        _ activities: Activities = .all, in mode: Mode = .default, order: Int = 0,
        _ handler: @escaping (Activities) -> Void
    ) {
        let observer = Observer(for: activities, order: order) { _, activity in handler(activity) }
        add(observer, forMode: mode)
    }

    /// Calls `handler` at the next of `activities` only.
    func observeOnce(
        _ activities: Activities, in mode: Mode = .default, _ handler: @escaping () -> Void
    ) {
        add(Observer(for: activities, repeats: false) { _, _ in handler() }, forMode: mode)
    }

    /// Polls the default mode, or another, once.
    @discardableResult
    func poll(_ mode: Mode = .default) -> RunResult { run(in: mode, until: .distantPast) }

    /// A source in `mode` that is signalled.
    @discardableResult
    func addSignalled(
        _ mode: Mode = .default, order: Int = 0, _ perform: @escaping @Sendable () -> Void
    ) -> Source {
        let source = Source(order: order, perform: perform)
        add(source, forMode: mode)
        source.signal()
        return source
    }
}

extension DescriptorSource {
    /// Traces `name` whenever `pipe` has something to read, and reads one byte of it.
    convenience init(_ pipe: TestPipe, _ trace: Trace, _ name: String) {
        self.init(pipe.readEnd, for: .readable) { _, _ in
            pipe.get()
            trace(name)
        }
    }
}

/// A stream delegate that calls a closure.
final class HandlerDelegate: StreamDelegate {
    private let handler: (Stream, Stream.Event) -> Void

    init(_ handler: @escaping (Stream, Stream.Event) -> Void) { self.handler = handler }

    func stream(_ stream: Stream, handle event: Stream.Event) { handler(stream, event) }
}
