import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// A source whose handler is all that retains `canary`.
func makeSource(_ signal: CInt, _ canary: AtEnd) throws -> SignalSource {
    try SignalSource(Signal(rawValue: signal)) { _, _ in withExtendedLifetime(canary) {} }
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

/// Signals belong to the process: tests that could meet use different ones, or run one after the other.
@Suite(.runLoop, .serialized) struct SignalSourceTests {
    private let loop = RunLoop.current

    @Test func `the handler gets the number of deliveries, on the loop's thread, of its signal alone`() throws
    {
        var counts: [Int] = []
        let source = try SignalSource(.userDefinedOne) { source, count in
            #expect(loop.isCurrent && source.signal == .userDefinedOne)
            counts.append(count)
        }
        let other = try SignalSource(.userDefinedTwo) { _, _ in Issue.record("called for another signal") }
        for each in [source, other] { try loop.add(each, forMode: .default) }
        for count in [1, 3] {
            for _ in 0..<count { deliver(SIGUSR1) }
            for _ in 0..<2 { loop.poll() }
        }
        #expect(counts == [1, 3])
        for each in [source, other] { each.cancel() }
    }

    @Test func `deliveries are kept until the source is in a mode that runs`() throws {
        var counts: [Int] = []
        let source = try SignalSource(.userDefinedOne) { _, count in counts.append(count) }
        deliver(SIGUSR1)
        try loop.add(source, forMode: .custom)
        deliver(SIGUSR1)
        #expect(loop.poll() == .finished)
        loop.poll(.custom)
        loop.remove(source, forMode: .custom)
        deliver(SIGUSR1)
        #expect(loop.poll(.custom) == .finished)
        try loop.add(source, forMode: .common)
        loop.poll(.tracking)
        source.cancel()
        #expect(counts == [2, 1])
    }

    @Test func `a signal from another thread wakes every loop that wants it, and none is lost`() {
        let signal = realTimeSignal(3)
        let (sent, loops) = (200, 3)
        let counted = Shared(Array(repeating: 0, count: loops))
        let ready = Countdown(loops)
        onThreads(loops + 1) { index in
            guard index < loops else {
                ready.wait()
                for _ in 0..<sent { kill(getpid(), signal) }
                return
            }
            let source = try! SignalSource(Signal(rawValue: signal)) { source, count in
                let total = counted.update { counts in
                    counts[index] += count
                    return counts[index]
                }
                if total >= sent { source.cancel() }
            }
            try! RunLoop.current.add(source, forMode: .default)
            ready.count()
            #expect(RunLoop.current.run(in: .default) == .finished)
        }
        #expect(counted.value == [sent, sent, sent])
    }

    @Test(arguments: [SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, 0, -1, 65, 1_000])
    func `a signal that cannot be caught, or that reports a fault, is refused`(signal: CInt) {
        expectErrno(.invalidArgument) { try SignalSource(Signal(rawValue: signal)) { _, _ in } }
    }

    @Test func `cancelling a source, or dropping it outside a loop, releases the handler and the signal`()
        throws
    {
        let signal = realTimeSignal(6)
        Glibc.signal(signal, SIG_IGN)
        let freed = Shared(0)
        let source = try makeSource(signal, AtEnd { freed.value += 1 })
        try loop.add(source, forMode: .common)
        #expect(freed.value == 0 && !isIgnored(signal))
        source.cancel()
        #expect(freed.value == 1 && !source.isValid && isIgnored(signal))
        _ = try makeSource(signal, AtEnd { freed.value += 1 })
        #expect(freed.value == 2 && isIgnored(signal))
    }
}
