import Glibc
import Reactor
import ReactorTestSupport
import SystemPackage

/// Runs `body` on a thread of its own, with its loop, and returns what it traced.
func traced(_ body: @escaping @Sendable (RunLoop, Trace) throws -> Void) async throws -> [String] {
    try await onItsOwnThread {
        let trace = Trace()
        try body(RunLoop.current, trace)
        return trace.all
    }
}

extension Deadline {
    /// Later than any test lasts: where it counts, a test asks for what ended the wait.
    static var minutesAway: Deadline { .now.advanced(by: .seconds(120)) }
}

extension RunLoop.Mode {
    static let outer = RunLoop.Mode("outer")
    static let inner = RunLoop.Mode("inner")
}

extension RunLoop {
    /// Calls `handler` at the next of `activities` only.
    func observeOnce(
        _ activities: Activities, in mode: Mode = .default, _ handler: @escaping () -> Void
    ) {
        add(Observer(for: activities, repeats: false) { _, _ in handler() }, forMode: mode)
    }

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
