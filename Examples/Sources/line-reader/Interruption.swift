import Glibc
import Reactor
import SystemPackage

/// What SIGINT and SIGTERM do: the first has the reading end early, the second ends the process at once.
final class Interruption {
    /// The signal that came, if one did.
    private(set) var signal: CInt?
    /// Called on the loop's thread for the first signal.
    var onSignal: () -> Void = {}

    private var sources: [SignalSource] = []

    init() throws(Errno) {
        for number in [SIGINT, SIGTERM] {
            let source = try SignalSource(number) { [unowned self] source, deliveries in
                heed(source.signal, deliveries)
            }
            try RunLoop.current.add(source, forMode: .common)
            sources.append(source)
        }
    }

    static func name(of signal: CInt) -> String { signal == SIGINT ? "SIGINT" : "SIGTERM" }

    private func heed(_ number: CInt, _ deliveries: Int) {
        stop()
        if deliveries > 1 { raise(number) }
        signal = number
        onSignal()
    }

    /// Gives the signals their usual effect back.
    func stop() {
        for source in sources { source.cancel() }
        sources = []
    }
}
