import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What happens to the process's own action for a signal, before, while and after it is caught.
@Suite(.runLoop, .serialized) struct SignalActionTests {
    private let loop = RunLoop.current

    @Test func `the last cancel restores the action that the first source found`() throws {
        let signal = realTimeSignal(4)
        Glibc.signal(signal, SIG_IGN)
        let sources = try (0..<3).map { _ in try SignalSource(Signal(rawValue: signal)) { _, _ in } }
        for source in sources {
            #expect(!isIgnored(signal))
            source.cancel()
            source.cancel()
        }
        #expect(isIgnored(signal))
        let again = try SignalSource(Signal(rawValue: signal)) { _, _ in }
        #expect(!isIgnored(signal))
        again.cancel()
        #expect(isIgnored(signal))
    }

    @Test func `an action that other code installs meanwhile stays`() throws {
        let signal = realTimeSignal(5)
        let source = try SignalSource(Signal(rawValue: signal)) { _, _ in }
        Glibc.signal(signal, SIG_IGN)
        source.cancel()
        #expect(isIgnored(signal))
    }

    @Test func `a source catches its signal though other code has ignored it beside another source`() throws {
        let signal = realTimeSignal(9)
        let first = try SignalSource(Signal(rawValue: signal)) { _, _ in }
        Glibc.signal(signal, SIG_IGN)
        var count = 0
        let second = try SignalSource(Signal(rawValue: signal)) { _, deliveries in count += deliveries }
        try loop.add(second, forMode: .default)
        deliver(signal)
        loop.poll()
        #expect(count == 1)
        for source in [first, second] { source.cancel() }
        #expect(isIgnored(signal))
    }

    @Test func `adding a source to a loop catches the signal though other code has ignored it meanwhile`()
        throws
    {
        let signal = realTimeSignal(10)
        var count = 0
        let source = try SignalSource(Signal(rawValue: signal)) { _, deliveries in count += deliveries }
        for (index, mode) in [RunLoop.Mode.default, .tracking].enumerated() {
            Glibc.signal(signal, SIG_IGN)
            deliver(signal)
            try loop.add(source, forMode: mode)
            deliver(signal)
            loop.poll()
            #expect(count == index + 1)
        }
        source.cancel()
        #expect(isIgnored(signal))
    }

    @Test func `the action that is restored is the last that other code had installed`() throws {
        let signal = realTimeSignal(11)
        Glibc.signal(signal, SIG_IGN)
        let first = try SignalSource(Signal(rawValue: signal)) { _, _ in }
        Glibc.signal(signal, SIG_DFL)
        let second = try SignalSource(Signal(rawValue: signal)) { _, _ in }
        for source in [first, second] { source.cancel() }
        #expect(!isIgnored(signal))
    }

    @Test func `after a handler has cancelled its source, the signal does what it did before`() async {
        await #expect(processExitsWith: .signal(SIGTERM)) {
            try onAThread {
                let source = try SignalSource(.terminate) { source, _ in
                    source.cancel()
                    deliver(SIGTERM)
                }
                try RunLoop.current.add(source, forMode: .default)
                deliver(SIGTERM)
                RunLoop.current.run(in: .default)
            }
        }
    }

    @Test func `a loop that ends with its thread frees its sources and their signals`() throws {
        let signal = realTimeSignal(8)
        let freed = Shared(false)
        Glibc.signal(signal, SIG_IGN)
        try onAThread {
            let source = try makeSource(signal, AtEnd { freed.value = true })
            try RunLoop.current.add(source, forMode: .common)
            #expect(!isIgnored(signal))
        }
        #expect(freed.value && isIgnored(signal))
    }

    @Test func `subscribing under a storm of signals neither loses one's own nor opens descriptors`() async {
        await #expect(processExitsWith: .success) { try onAThread(weatherStorm) }
    }

    @Test func `sources that have ended keep no descriptor, also those that ended on another thread`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "signals")
            let loop = thread.runLoop
            // By then the loop has the descriptors that it sleeps with.
            loop.untilAsleep()
            let descriptors = loop.performSynchronously { ownDescriptors() }
            for _ in 0..<100 {
                _ = try SignalSource(.userDefinedOne) { _, _ in }
                _ = try loop.signals([.userDefinedOne, .userDefinedTwo])
            }
            #expect(loop.performSynchronously { ownDescriptors() } == descriptors)
            await thread.shutDown()
        }
    }
}

/// A thread sends two signals as fast as it can while this one subscribes and cancels.
@Sendable private func weatherStorm() throws {
    let (noise, wanted) = (SIGUSR1, realTimeSignal(1))
    for signal in [noise, wanted] { Glibc.signal(signal, SIG_IGN) }
    let over = Shared(false)
    let storm = try JoinableThread(name: "storm") {
        while !over.value {
            kill(getpid(), noise)
            kill(getpid(), wanted)
        }
    }
    let loop = RunLoop.current
    var descriptors = 0
    for round in 0..<100 {
        var calls = 0
        let sources = try (0..<3).map { index in
            try SignalSource(Signal(rawValue: index == 0 ? wanted : noise)) { source, count in
                #expect(count > 0)
                calls += 1
                source.cancel()
            }
        }
        for source in sources { try loop.add(source, forMode: .default) }
        #expect(loop.run(in: .default, until: .minutesAway) == .finished)
        #expect(calls == 3)
        if round == 10 { descriptors = ownDescriptors() }
    }
    #expect(ownDescriptors() == descriptors)
    over.value = true
    storm.join()
}
