import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct PassTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test func `a pass runs blocks, sources, blocks, timers and descriptors, between its observers`() throws {
        loop.observe { trace("\($0)") }
        let source = RunLoop.Source { trace("source") }
        loop.add(source, forMode: .default)
        let pipe = try TestPipe()
        pipe.put()
        try loop.add(DescriptorSource(pipe, trace, "descriptor"), forMode: .default)
        Timer.scheduled(after: .zero) { _ in trace("timer") }
        loop.perform {
            trace("block")
            source.signal()
            loop.perform { trace("block of block") }
        }
        #expect(loop.run(in: .default, returnAfterSourceHandled: true) == .handledSource)
        #expect(
            trace.all == [
                "entry", "beforeTimers", "beforeSources", "block", "source", "block of block", "timer",
                "descriptor", "exit",
            ])
    }

    @Test func `a pass that sleeps notifies the waiting observers, and a woken handler runs afterwards`() {
        loop.observe { trace("\($0)\(loop.isWaiting ? "!" : "")") }
        Timer.scheduled(after: .milliseconds(2)) { _ in trace("timer\(loop.isWaiting ? "!" : "")") }
        #expect(loop.run(in: .default) == .finished)
        #expect(
            trace.all == [
                "entry", "beforeTimers", "beforeSources", "beforeWaiting", "afterWaiting", "timer", "exit",
            ])
    }

    @Test func `a pass delivers what a stream has without the kernel before it waits`() {
        // The first pass in a mode makes what it waits with.
        let source = loop.hold(.default)
        loop.poll()
        source.invalidate()
        loop.observe { trace("\($0)") }
        let stream = InputStream(data: [1])
        let delegate = HandlerDelegate { [trace] stream, event in
            trace("\(event)")
            if event == .hasBytesAvailable { stream.close() }
        }
        stream.delegate = delegate
        stream.schedule(in: loop, forMode: .default)
        stream.open()
        Timer.scheduled(after: .zero) { _ in trace("timer") }
        #expect(loop.run(in: .default) == .finished)
        #expect(
            trace.all == [
                "entry", "beforeTimers", "beforeSources", "openCompleted", "hasBytesAvailable",
                "beforeWaiting",
                "afterWaiting", "timer", "exit",
            ])
    }

    @Test
    func `sources are served in their order, common ones among them, equal ones as they were signalled`() {
        let modes: [(Int, RunLoop.Mode)] = [(5, .default), (-1, .common), (5, .common), (0, .default)]
        let sources = modes.enumerated().map { index, place in
            let source = RunLoop.Source(order: place.0) { trace("\(index)") }
            loop.add(source, forMode: place.1)
            return source
        }
        for index in [2, 3, 0, 1, 2] { sources[index].signal() }
        loop.poll()
        #expect(trace.all == ["1", "3", "2", "0"])
    }

    @Test func `returning after a source serves the first signalled one and keeps the others`() {
        for order in [2, 1, 3] { loop.addSignalled(order: order) { trace("\(order)") } }
        for count in 1...3 {
            #expect(loop.run(mode: .default, before: .distantFuture))
            #expect(trace.all.count == count)
        }
        #expect(trace.all == ["1", "2", "3"])
    }
}
