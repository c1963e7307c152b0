import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// Makes a thread, gives it a loop and `body`, and waits until the thread has ended.
private func endedThread(_ body: @escaping @Sendable (RunLoop) throws -> Void) async throws -> RunLoop {
    try await onItsOwnThread {
        let loop = Answer<RunLoop>()
        let thread = try JoinableThread(name: "ending") {
            let own = RunLoop.current
            try? body(own)
            loop.give(own)
        }
        thread.join()
        return loop.wait()
    }
}

@Suite(.runLoop) struct ThreadEndTests {
    @Test func `a thread has one loop, another thread another`() async throws {
        let (first, again) = try await onItsOwnThread { (RunLoop.current, RunLoop.current) }
        let other = try await onItsOwnThread { RunLoop.current }
        #expect(first === again)
        #expect(first == again)
        #expect(first != other)
    }

    @Test(arguments: Kind.allCases)
    func `a loop releases its items when its thread ends`(kind: Kind) async throws {
        let trace = Trace()
        let fate = Mutex<Fate?>(nil)
        _ = try await endedThread { loop in
            let witness = Witness()
            fate.withLock { $0 = Fate(witness) }
            let item = try HoldingItem(kind, witness)
            try item.add(to: loop)
            loop.poll()
            trace("\(fate.withLock { $0?.isFreed == false })")
        }
        #expect(trace.all == ["true"])
        #expect(fate.withLock { $0?.isFreed } == true)
    }

    @Test func `cancelled is called on the loop's thread when the loop ends`() async throws {
        let trace = Trace()
        let source = RunLoop.Source(
            cancelled: { loop, mode in trace("out of \(mode) \(loop.isCurrent) \(loop === RunLoop.current)")
            },
            perform: {})
        let loop = try await endedThread { $0.add(source, forMode: .custom) }
        #expect(trace.all == ["out of custom true true"])
        #expect(!loop.contains(source, forMode: .custom))
        #expect(source.isValid)
    }

    @Test func `objects destroyed at the loop's end can neither run the loop nor add to it`() async throws {
        let trace = Trace()
        let source = RunLoop.Source(
            cancelled: { loop, _ in
                loop.add(Timer(interval: .seconds(100)) { _ in }, forMode: .default)
                loop.hold(.default)
                loop.perform { trace("block") }
                trace("\(loop.run(mode: .default, before: .distantFuture))")
            }, perform: {})
        let loop = try await endedThread { $0.add(source, forMode: .custom) }
        #expect(trace.all == ["false"])
        #expect(loop.currentMode == nil)
    }

    @Test func `a loop that has ended accepts no items and retains none`() async throws {
        let loop = try await endedThread { _ in }
        let timer = Timer(interval: .zero) { _ in }
        let source = RunLoop.Source(scheduled: { _, _ in Issue.record("scheduled") }, perform: {})
        loop.add(timer, forMode: .default)
        loop.add(source, forMode: .default)
        let fate: Fate
        do {
            let posted = Witness()
            fate = Fate(posted)
            loop.perform { withExtendedLifetime(posted) {} }
        }
        #expect(fate.isFreed)
        #expect(!loop.contains(timer, forMode: .default))
        #expect(!loop.contains(source, forMode: .default))
        loop.wakeUp()
        loop.stop()
        #expect(timer.isValid)
    }

    @Test func `a timer outlives its loop and may join another`() async throws {
        let trace = Trace()
        let timer = Timer(interval: .zero) { _ in trace("timer") }
        _ = try await endedThread { $0.add(timer, forMode: .default) }
        _ = try await onItsOwnThread {
            RunLoop.current.add(timer, forMode: .default)
            return RunLoop.current.run(in: .default)
        }
        #expect(trace.all == ["timer"])
    }

    @Test func `a poller with something unserved ends with its loop`() async {
        // In a process of its own, in which only this opens descriptors.
        await #expect(processExitsWith: .success) {
            try Self.endLoopWithSomethingUnserved()
            let before = ownDescriptors()
            for _ in 0..<3 { try Self.endLoopWithSomethingUnserved() }
            precondition(ownDescriptors() == before)
        }
    }

    private static func endLoopWithSomethingUnserved() throws {
        try onAThread {
            let pipes = try (0..<2).map { _ in try TestPipe() }
            for pipe in pipes {
                pipe.put()
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
                try RunLoop.current.add(source, forMode: .default)
            }
            #expect(RunLoop.current.run(mode: .default, before: .distantPast))
        }
    }

    @Test
    func
        `a source added while the loop's thread ends is told that it has left each mode it was told to be in`()
        async throws
    {
        let trace = Trace()
        let (loop, mayEnd) = (Answer<RunLoop>(), Answer<Void>())
        let thread = try JoinableThread(name: "ending") {
            loop.give(.current)
            mayEnd.wait()
        }
        try await onItsOwnThread {
            let ending = loop.wait()
            let source = RunLoop.Source(
                scheduled: { _, mode in
                    trace("into \(mode)")
                    mayEnd.give(())
                    thread.join()
                },
                cancelled: { _, mode in trace("out of \(mode)") }, perform: {})
            ending.add(source, forMode: .custom)
            #expect(!ending.contains(source, forMode: .custom))
        }
        #expect(trace.all == ["into custom", "out of custom"])
    }

    @Test func `threads may post while the loop's thread ends`() async throws {
        for _ in 0..<200 {
            try await onItsOwnThread {
                let loop = Answer<RunLoop>()
                let thread = try JoinableThread(name: "ending") {
                    RunLoop.current.hold(.default)
                    loop.give(.current)
                    RunLoop.current.run(in: .default, until: .after(milliseconds: 1))
                }
                let hasEnded = Shared(false)
                let posters = try (0..<2).map { _ in
                    try JoinableThread(name: "posting") {
                        let other = loop.wait()
                        while !hasEnded.value {
                            other.perform {}
                            let timer = Timer(interval: .seconds(9)) { _ in }
                            other.add(timer, forMode: .default)
                            timer.invalidate()
                            other.wakeUp()
                        }
                    }
                }
                thread.join()
                hasEnded.value = true
                for poster in posters { poster.join() }
            }
        }
    }
}

/// An item of some kind whose closure holds something.
private struct HoldingItem {
    private let addition: (RunLoop) throws -> Void

    init(_ kind: Kind, _ witness: Witness) throws {
        let pipe = try TestPipe()
        let source = RunLoop.Source { withExtendedLifetime(witness) {} }
        let descriptor = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
            withExtendedLifetime((witness, pipe)) {}
        }
        let observer = RunLoop.Observer { _, _ in withExtendedLifetime(witness) {} }
        addition =
            switch kind {
            case .source: { $0.add(source, forMode: .common) }
            case .descriptor: { try $0.add(descriptor, forMode: .common) }
            case .observer: { $0.add(observer, forMode: .common) }
            case .timer:
                { _ in
                    Timer.scheduled(after: .seconds(100), forMode: .common) { _ in
                        withExtendedLifetime(witness) {}
                    }
                }
            }
    }

    func add(to loop: RunLoop) throws { try addition(loop) }
}
