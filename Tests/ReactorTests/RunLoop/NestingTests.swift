import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Runs of the loop within callbacks.
@Suite(.runLoop) struct NestingTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test(arguments: [Kind.source, .timer, .observer])
    func `items that are ready together are called once though the first of them nests`(kind: Kind) throws {
        let add = { @Sendable (name: String, nests: Bool) in
            let item = try kind.makeItem {
                trace("\(name) begins")
                if nests { loop.poll() }
                trace("\(name) ends")
            }
            if kind == .observer { loop.hold(.default) }
            try item.add(to: loop, .default)
        }
        try add("first", true)
        try add("second", false)
        loop.poll()
        let nested = ["first begins", "second begins", "second ends", "first ends"]
        // An observer is called in each activation.
        #expect(trace.all == nested + (kind == .observer ? ["second begins", "second ends"] : []))
    }

    // MARK: Descriptors

    @Test(arguments: [RunLoop.Mode.default, .common])
    func `a descriptor that is ready in its own callback does not keep a nested loop awake`(
        mode: RunLoop.Mode
    ) throws {
        let pipe = try TestPipe()
        var (depth, calls, passes) = (0, 0, 0)
        loop.observe(.beforeTimers, in: .common) { _ in passes += depth }
        let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
            #expect(depth == 0)
            (depth, calls, passes) = (1, calls + 1, 0)
            #expect(loop.run(in: .default, until: .after(milliseconds: 10)) == .timedOut)
            #expect(passes < 10)
            depth = 0
        }
        try loop.add(source, forMode: mode)
        pipe.put()
        for count in 1...2 {
            loop.poll()
            #expect(calls == count)
        }
    }

    @Test func `a descriptor that nesting had to silence is heard again afterwards, in every mode`() throws {
        let pipe = try TestPipe()
        pipe.put()
        var calls = 0
        let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
            calls += 1
            if calls == 1 { for mode in [RunLoop.Mode.default, .tracking] { loop.poll(mode) } }
        }
        try loop.add(source, forMode: .common)
        for (index, mode) in [RunLoop.Mode.default, .tracking, .default, .tracking].enumerated() {
            loop.poll(mode)
            #expect(calls == index + 1)
        }
    }

    @Test
    func `a nested pass handles a descriptor that the outer one has found ready once, after its timers`()
        throws
    {
        let pipe = try TestPipe()
        pipe.put()
        try loop.add(
            DescriptorSource(pipe.readEnd, for: .readable) { [trace] _, _ in
                trace("descriptor")
                pipe.get()
                pipe.put()
            }, forMode: .default)
        Timer.scheduled(after: .zero) { [loop, trace] _ in
            trace("timer")
            Timer.scheduled(after: .zero) { _ in trace("nested timer") }
            loop.run(in: .default, until: .distantPast)
        }
        loop.run(in: .default, until: .distantPast)
        #expect(trace.all == ["timer", "nested timer", "descriptor"])
    }

    @Test func `a source cancelled in a nested activation of its own callback is not called again`() throws {
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            trace("called")
            loop.poll()
            Timer.scheduled(after: .zero) { _ in source.cancel() }
            loop.poll()
            #expect(!source.isValid)
        }
        try loop.add(source, forMode: .default)
        loop.poll()
        #expect(loop.poll() == .finished)
        #expect(trace.all == ["called"])
    }

    @Test func `interest that changes while a descriptor is silenced takes effect afterwards`() throws {
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            trace("called")
            loop.poll()
            try? source.setInterest([])
        }
        try loop.add(source, forMode: .default)
        for _ in 0..<2 { loop.poll() }
        #expect(trace.take() == ["called"])
        try source.setInterest(.readable)
        loop.poll()
        #expect(trace.take() == ["called"])
    }

    // MARK: Work for an outer activation

    @Test func `activations nest a hundred deep and unwind in order`() {
        let depth = 100
        @Sendable func descend(_ level: Int) {
            guard level < depth else { return }
            loop.perform { descend(level + 1) }
            loop.poll()
            trace("\(level)")
        }
        loop.perform { descend(1) }
        loop.poll()
        #expect(trace.all == (1..<depth).reversed().map { "\($0)" })
    }

    @Test func `a job that an observer of a nested run enqueues runs before that run sleeps`() {
        loop.hold(.custom)
        let executor = loop.executor(inModes: [.default, .custom])
        loop.observeOnce(.beforeWaiting, in: .custom) { Task(executorPreference: executor) { trace("job") } }
        @Sendable func nest() {
            let result = loop.run(in: .custom, until: .minutesAway, returnAfterSourceHandled: true)
            trace("\(result)")
        }
        Task(executorPreference: executor) { nest() }
        loop.poll()
        #expect(trace.all == ["job", "handledSource"])
    }

    @Test func `a source that is signalled before a nested run of another mode waits for the next pass`() {
        loop.hold(.custom)
        let second = RunLoop.Source(order: 1) { trace("second") }
        loop.add(second, forMode: .default)
        loop.addSignalled {
            trace("first")
            second.signal()
            loop.poll(.custom)
        }
        for _ in 0..<2 {
            loop.poll()
            trace("pass")
        }
        #expect(trace.all == ["first", "pass", "second", "pass"])
    }

    // MARK: Leaving and returning

    @Test(arguments: SourceReturn.allCases)
    func
        `a source signalled in its callback, also one that returns, is called when the callback has returned`(
            way: SourceReturn
        )
    {
        for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
        let own = Shared<RunLoop.Source?>(nil)
        own.value = loop.addSignalled {
            trace("begins")
            if let source = own.value.take() {
                way.leaveAndReturn(source, loop)
                for mode in [RunLoop.Mode.default, .custom] { loop.poll(mode) }
            }
            trace("ends")
        }
        for _ in 0..<2 {
            for mode in [RunLoop.Mode.default, .custom] { loop.poll(mode) }
        }
        #expect(trace.all == ["begins", "ends", "begins", "ends"])
    }

    @Test(arguments: Kind.allCases)
    func `no item that is removed and added again in its callback is called within it`(kind: Kind) throws {
        let own = Shared<Carrier<any TestItem>?>(nil)
        let item = try kind.makeItem {
            trace("begins")
            if let item = own.value.take()?.value {
                item.remove(from: loop, .default)
                try? item.add(to: loop, .default)
                (item as? RunLoop.Source)?.signal()
                for _ in 0..<3 { loop.poll() }
            }
            trace("ends")
        }
        own.value = Carrier(item)
        try item.add(to: loop, .default)
        loop.hold(.default)
        loop.poll()
        #expect(trace.take() == ["begins", "ends"])
        loop.poll()
        // A timer fires once.
        #expect(trace.take() == (kind == .timer ? [] : ["begins", "ends"]))
    }
}

/// How a source leaves its loop, if it does, and returns, in its own callback.
enum SourceReturn: CaseIterable, Sendable {
    case stays, sameMode, otherMode, fromOtherThread, signalFirst

    func leaveAndReturn(_ source: RunLoop.Source, _ loop: RunLoop) {
        if self == .stays { return source.signal() }
        let leaveAndReturn = { @Sendable in
            if self == .signalFirst { source.signal() }
            loop.remove(source, forMode: .default)
            loop.add(source, forMode: self == .otherMode ? .custom : .default)
            if self != .signalFirst { source.signal() }
        }
        if self == .fromOtherThread { onThreads(1) { _ in leaveAndReturn() } } else { leaveAndReturn() }
    }
}
