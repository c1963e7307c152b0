import Glibc
import Reactor
package import SystemPackage

/// What SIGINT and SIGTERM do on this thread's loop: the first calls a closure, the second ends the process at once.
///
/// Any number of loops may wait, each for itself. The loop keeps it alive until a signal has come.
package final class Interruption {
    /// The signal that came, if one did.
    package private(set) var signal: CInt?
    /// Called on the loop's thread for the first signal.
    package var onSignal: () -> Void

    private var sources: [SignalSource] = []

    @discardableResult
    package init(_ onSignal: @escaping () -> Void = {}) throws(Errno) {
        self.onSignal = onSignal
        for number in [SIGINT, SIGTERM] {
            let source = try SignalSource(number) { [self] source, deliveries in
                heed(source.signal, deliveries)
            }
            try RunLoop.current.add(source, forMode: .common)
            sources.append(source)
        }
    }

    package static func name(of signal: CInt) -> String { signal == SIGINT ? "SIGINT" : "SIGTERM" }

    private func heed(_ number: CInt, _ deliveries: Int) {
        stop()
        if deliveries > 1 { raise(number) }
        signal = number
        onSignal()
    }

    /// Gives the signals their usual effect back, once no loop waits for them any longer.
    package func stop() {
        for source in sources { source.cancel() }
        sources = []
    }
}
