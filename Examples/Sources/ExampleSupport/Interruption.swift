import Glibc
package import Reactor

/// Handles SIGINT and SIGTERM on the calling thread's loop: the first signal calls a closure, and the second kills the
/// process.
///
/// Any number of loops may have one. The loop retains it until the first signal or ``stop()``.
package final class Interruption {
    /// The first signal; nil before it arrives.
    package private(set) var signal: Signal?
    /// Called on the loop's thread when the first signal arrives.
    package var onSignal: () -> Void

    private var sources: [SignalSource] = []

    @discardableResult
    package init(_ onSignal: @escaping () -> Void = {}) throws(IOError) {
        self.onSignal = onSignal
        for signal in [.interrupt, .terminate] as [Signal] {
            let source = try SignalSource(signal) { [self] source, deliveries in
                handle(source.signal, deliveries)
            }
            try RunLoop.current.add(source, forMode: .common)
            sources.append(source)
        }
    }

    private func handle(_ signal: Signal, _ deliveries: Int) {
        stop()
        if deliveries > 1 { raise(signal.rawValue) }  // the default action, which stop() has restored
        self.signal = signal
        onSignal()
    }

    /// Stops handling the signals. After the last loop has stopped, their previous dispositions apply again.
    package func stop() {
        for source in sources { source.cancel() }
        sources = []
    }
}
