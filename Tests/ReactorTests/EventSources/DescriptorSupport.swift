import Glibc
import Reactor
import SystemPackage

/// A source whose handler is all that holds `canary`.
func makeSource(_ signal: CInt, _ canary: AtEnd) throws -> SignalSource {
    try SignalSource(signal) { _, _ in withExtendedLifetime(canary) {} }
}

/// Sends `signal` to this thread, and returns when it has been caught. Dispatch's threads, and those that they make, block
/// signals.
func deliver(_ signal: CInt) {
    var set = sigset_t()
    sigemptyset(&set)
    sigaddset(&set, signal)
    pthread_sigmask(SIG_UNBLOCK, &set, nil)
    raise(signal)
}

/// Real-time signals are queued, so that every delivery counts.
func realTimeSignal(_ offset: CInt) -> CInt { __libc_current_sigrtmin() + offset }

func isIgnored(_ signal: CInt) -> Bool {
    var action = sigaction()
    sigaction(signal, nil, &action)
    return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
}

/// A source whose handler is all that holds `canary`.
func makeSource(
    _ pipe: TestPipe, _ canary: AtEnd, _ body: @escaping (DescriptorSource) -> Void
) -> DescriptorSource {
    DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        withExtendedLifetime(canary) { body(source) }
    }
}

/// The same, in `mode` of this thread's loop.
func addSource(
    _ pipe: TestPipe, _ mode: RunLoop.Mode, _ canary: AtEnd, _ body: @escaping (DescriptorSource) -> Void
) throws -> DescriptorSource {
    let source = makeSource(pipe, canary, body)
    try RunLoop.current.add(source, forMode: mode)
    return source
}
