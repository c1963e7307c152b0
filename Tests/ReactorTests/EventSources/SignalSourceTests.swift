import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// Signals belong to the process: tests that could meet run in processes of their own.
@Suite(.runLoop, .serialized) struct SignalSourceTests {
    @Test func `the handler gets the number of deliveries, on the loop's thread`() async throws {
        let counts = try await onItsOwnThread { () -> [Int] in
            let loop = RunLoop.current
            var counts: [Int] = []
            let source = try SignalSource(SIGUSR1) { source, count in
                #expect(loop.isCurrent)
                counts.append(count)
            }
            try loop.add(source, forMode: .default)
            deliver(SIGUSR1)
            loop.poll()
            for _ in 0..<3 { deliver(SIGUSR1) }
            loop.poll()
            loop.poll()
            source.cancel()
            return counts
        }
        #expect(counts == [1, 3])
    }

    @Test func `deliveries are kept until the source is in a mode that runs`() async throws {
        let counts = try await onItsOwnThread { () -> [Int] in
            let loop = RunLoop.current
            var counts: [Int] = []
            let source = try SignalSource(SIGUSR1) { _, count in counts.append(count) }
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
            return counts
        }
        #expect(counts == [2, 1])
    }

    @Test func `a signal from another thread wakes every loop that wants it, and none is lost`() async throws
    {
        let signal = realTimeSignal(3)
        let (sent, loops) = (200, 3)
        let counted = Shared(Array(repeating: 0, count: loops))
        let ready = Countdown(loops)
        try await onItsOwnThread {
            onThreads(loops + 1) { index in
                guard index < loops else {
                    ready.wait()
                    for _ in 0..<sent { kill(getpid(), signal) }
                    return
                }
                let source = try! SignalSource(signal) { source, count in
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
        }
        #expect(counted.value == [sent, sent, sent])
    }

    @Test func `a source of one signal is not called for another`() throws {
        let loop = RunLoop.current
        var told: [CInt] = []
        let sources = try [SIGUSR1, SIGUSR2].map { signal in
            try SignalSource(signal) { source, _ in told.append(source.signal) }
        }
        for source in sources { try loop.add(source, forMode: .default) }
        deliver(SIGUSR2)
        loop.poll()
        #expect(told == [SIGUSR2])
        for source in sources { source.cancel() }
    }

    @Test(arguments: [SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, 0, -1, 65, 1_000])
    func `a signal that cannot be caught, or that reports a fault, is refused`(signal: CInt) {
        #expect(throws: Errno.invalidArgument) { try SignalSource(signal) { _, _ in } }
    }

    @Test func `cancelling releases the handler, even if the source is retained`() throws {
        let freed = Shared(false)
        let source = try makeSource(realTimeSignal(6), AtEnd { freed.value = true })
        try RunLoop.current.add(source, forMode: .common)
        #expect(!freed.value)
        source.cancel()
        #expect(freed.value)
        #expect(!source.isValid)
    }

    @Test func `a source that is dropped outside a loop frees its handler and the signal`() throws {
        let signal = realTimeSignal(7)
        Glibc.signal(signal, SIG_IGN)
        let freed = Shared(false)
        _ = try makeSource(signal, AtEnd { freed.value = true })
        #expect(freed.value)
        #expect(isIgnored(signal))
    }

    @Test func `a source that only its loop retains keeps working`() async throws {
        let count = try await onItsOwnThread { () -> Int in
            var calls = 0
            try RunLoop.current.add(
                SignalSource(SIGUSR1) { source, _ in
                    calls += 1
                    if calls == 2 { source.cancel() }
                }, forMode: .default)
            for _ in 0..<2 {
                deliver(SIGUSR1)
                RunLoop.current.poll()
            }
            return calls
        }
        #expect(count == 2)
    }
}
