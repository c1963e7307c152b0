import Glibc
import Reactor
package import SystemPackage

/// Handles SIGINT and SIGTERM on the calling thread's loop: the first signal calls a closure, and the second kills the
/// process.
///
/// Any number of loops may have one. The loop retains it until the first signal or ``stop()``.
package final class Interruption {
    /// The first signal; nil before it arrives.
    package private(set) var signal: CInt?
    /// Called on the loop's thread when the first signal arrives.
    package var onSignal: () -> Void

    private var sources: [SignalSource] = []

    @discardableResult
    package init(_ onSignal: @escaping () -> Void = {}) throws(Errno) {
        self.onSignal = onSignal
        for number in [SIGINT, SIGTERM] {
            let source = try SignalSource(number) { [self] source, deliveries in
                handle(source.signal, deliveries)
            }
            try RunLoop.current.add(source, forMode: .common)
            sources.append(source)
        }
    }

    package static func name(of signal: CInt) -> String { signal == SIGINT ? "SIGINT" : "SIGTERM" }

    private func handle(_ number: CInt, _ deliveries: Int) {
        stop()
        if deliveries > 1 { raise(number) }  // the default action, which stop() has restored
        signal = number
        onSignal()
    }

    /// Stops handling the signals. After the last loop has stopped, their previous dispositions apply again.
    package func stop() {
        for source in sources { source.cancel() }
        sources = []
    }
}
