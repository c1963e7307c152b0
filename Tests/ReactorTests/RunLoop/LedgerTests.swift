import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Which item the ledger credits with a wake-up. Each in a process of its own: the switches are the process's.
@Suite(.runLoop) struct LedgerTests {
    @Test func `a wake-up without a handler is the thread's, and the next one the timer's`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let (loop, kernelThread) = (RunLoop.current, KernelThread.current)
                loop.hold(.default)
                let asleep = Answer<Bool>()
                let waker = try JoinableThread(name: "poker") {
                    waitUntil { loop.isWaiting && kernelThread.isAsleep }
                    let before = loop.statistics.wakeUps.byThread
                    loop.wakeUp()
                    waitUntil { loop.statistics.wakeUps.byThread > before }
                    waitUntil { loop.isWaiting && kernelThread.isAsleep }
                    loop.add(
                        Timer(interval: .milliseconds(300), label: "alarm") { _ in loop.stop() },
                        forMode: .default)
                    asleep.give(true)
                }
                loop.run(in: .default)
                _ = asleep.wait()
                waker.join()
                let ledger = loop.statistics.ledger
                #expect(ledger.first { $0.name == "thread 'poker'" }?.wakeUps == 2, "\(ledger)")
                #expect(ledger.first { $0.name.contains("'alarm'") }?.wakeUps == 1, "\(ledger)")
            }
        }
    }

    @Test func `a sleep that a run's deadline has ended is no item's`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
                loop.hold(.default)
                while loop.statistics.wakeUps.byTime == 0 {
                    loop.run(in: .default, until: .after(milliseconds: 5))
                }
                loop.perform {}
                Timer.scheduled(after: .zero) { _ in }
                loop.poll()
                #expect(loop.statistics.callbacks.blocks == 1)
                #expect(loop.statistics.callbacks.timers == 1)
                #expect(loop.statistics.ledger.allSatisfy { $0.wakeUps == 0 }, "\(loop.statistics.ledger)")
            }
        }
    }

    @Test func `an observer does not take the wake-up of the timer that follows`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
                loop.observe(.afterWaiting) { _ in }
                while loop.statistics.wakeUps.byTime == 0 {
                    Timer.scheduled(after: .milliseconds(5)) { _ in loop.stop() }
                    loop.run(in: .default)
                }
                let ledger = loop.statistics.ledger
                #expect(ledger.first { $0.name == "observer" }?.wakeUps == 0, "\(ledger)")
                #expect(ledger.first { $0.name == "timer" }?.wakeUps == 1, "\(ledger)")
            }
        }
    }

    @Test func `lookups share an entry, whatever their hosts`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                for host in ["127.0.0.1", "::1"] { Resolver.resolve(host: host, port: 1) { _ in } }
                RunLoop.current.poll()
                let ledger = RunLoop.current.statistics.ledger
                #expect(ledger.first { $0.name == "lookup" }?.callbacks == 2, "\(ledger)")
            }
        }
    }

    @Test func `unlabelled descriptors share an entry, and labelled ones have their own`() async {
        await #expect(processExitsWith: .success) {
            LoopDiagnostics.measuresCallbacks = true
            try await onItsOwnThread {
                let loop = RunLoop.current
                let pipes = try (0..<3).map { _ in try TestPipe() }
                for (index, pipe) in pipes.enumerated() {
                    pipe.put()
                    let source = DescriptorSource(
                        pipe.readEnd, for: .readable, label: index == 2 ? "bell" : nil
                    ) { source, _ in source.cancel() }
                    try loop.add(source, forMode: .default)
                }
                loop.poll()
                let ledger = loop.statistics.ledger
                #expect(ledger.first { $0.name == "descriptor source" }?.callbacks == 2, "\(ledger)")
                #expect(ledger.first { $0.name.hasSuffix("'bell'") }?.callbacks == 1, "\(ledger)")
            }
        }
    }
}
