import Reactor
import ReactorTesting
import Testing

/// What the ledger counts for which item. Each in a process of its own: the switch is the process's.
@Suite(.runLoop) struct LedgerTests {
    @Test func `a wake-up is the item's whose callback follows, or else the thread's that asked for it`()
        async
    {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                let pipe = try TestPipe()
                let bell = DescriptorSource(pipe.readEnd, for: .readable, label: "bell") { _, _ in
                    spin()
                    pipe.get()
                    loop.stop()
                }
                try loop.add(bell, forMode: .default)
                loop.observe(.afterWaiting) { _ in }
                let thread = KernelThread.current
                for wake in [{ @Sendable in pipe.put() }, { @Sendable in loop.perform { loop.stop() } }] {
                    let waker = try loop.whenAsleep(wake)
                    loop.run(in: .default)
                    waker.join()
                }
                // One without a handler, and the next one a timer's.
                let waker = try loop.whenAsleep {
                    let before = loop.statistics.wakeUps.byThread
                    loop.wakeUp()
                    waitUntil { loop.statistics.wakeUps.byThread > before }
                    waitUntil { loop.isWaiting && thread.isAsleep }
                    loop.add(
                        Timer(interval: .milliseconds(50), label: "alarm") { _ in loop.stop() },
                        forMode: .default)
                }
                loop.run(in: .default)
                waker.join()
                let ledger = loop.statistics.ledger
                func entry(_ name: String) -> RunLoop.Statistics.LedgerEntry? {
                    ledger.first { $0.name.contains(name) }
                }
                #expect(entry("'bell'")?.wakeUps == 1 && entry("'bell'")?.callbacks == 1, "\(ledger)")
                #expect(entry("'alarm'")?.wakeUps == 1 && entry("'waker'")?.wakeUps == 3, "\(ledger)")
                #expect(entry("observer")?.wakeUps == 0, "\(ledger)")
                let time = entry("'bell'")!.time
                #expect(time >= .milliseconds(2) && entry("'bell'")!.longest == time)
                #expect(loop.statistics.callbackTime >= time)
            }
        }
    }

    @Test func `a sleep that a run's deadline has ended is no item's`() async {
        await #expect(processExitsWith: .success) {
            try measured { loop in
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

    @Test func `unlabelled items of a kind share an entry, and labelled ones have their own`() async {
        await #expect(processExitsWith: .success) {
            try measured { loop in
                for label in [nil, nil, "bell"] {
                    let pipe = try TestPipe()
                    pipe.put()
                    let source = DescriptorSource(pipe.readEnd, for: .readable, label: label) { source, _ in
                        withExtendedLifetime(pipe) { source.cancel() }
                    }
                    try loop.add(source, forMode: .default)
                }
                for host in ["127.0.0.1", "::1"] { Resolver.resolve(host: host, port: 1) { _ in } }
                loop.poll()
                let ledger = loop.statistics.ledger
                for (name, count) in [("descriptor source", 2), ("lookup", 2)] {
                    #expect(ledger.first { $0.name == name }?.callbacks == count, "\(ledger)")
                }
                #expect(ledger.first { $0.name.hasSuffix("'bell'") }?.callbacks == 1, "\(ledger)")
            }
        }
    }
}
