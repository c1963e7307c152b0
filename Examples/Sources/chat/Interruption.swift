import Glibc
import Reactor
import SystemPackage

/// What SIGINT and SIGTERM do: the first one calls a closure, the second one ends the process at once.
enum Interruption {
    /// Has `action` called on this thread's loop for the first signal that comes.
    ///
    /// Any number of loops may wait, each for itself.
    static func await(_ action: @escaping () -> Void) throws(Errno) {
        var sources: [SignalSource] = []
        for number in [SIGINT, SIGTERM] {
            let source = try SignalSource(number) { source, deliveries in
                // The signals get their usual effect back, once no loop waits for them any longer.
                for source in sources { source.cancel() }
                sources = []
                if deliveries > 1 { raise(source.signal) }
                action()
            }
            try RunLoop.current.add(source, forMode: .common)
            sources.append(source)
        }
    }
}
