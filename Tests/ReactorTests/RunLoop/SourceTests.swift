import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct SourceTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// A source that traces its callbacks.
    private var tracedSource: RunLoop.Source {
        RunLoop.Source(
            scheduled: { loop, mode in trace("in \(mode)\(loop.isCurrent ? "" : " of another loop")") },
            cancelled: { loop, mode in trace("out of \(mode)\(loop.isCurrent ? "" : " of another loop")") },
            perform: { trace("perform") })
    }

    // MARK: Modes

    @Test func `scheduled and cancelled are called once for each mode`() {
        let source = tracedSource
        for mode in [RunLoop.Mode.custom, .custom, .common, .common] { loop.add(source, forMode: mode) }
        for _ in 0..<2 { loop.addCommonMode(.inner) }
        let common = ["\(RunLoop.Mode.default)", "\(RunLoop.Mode.tracking)", "inner"]
        #expect(trace.take() == ["in custom"] + common.map { "in \($0)" })
        for mode in [RunLoop.Mode.custom, .custom, .common, .common] { loop.remove(source, forMode: mode) }
        #expect(trace.all.sorted() == (["custom"] + common).map { "out of \($0)" }.sorted())
    }

    @Test func `invalidating removes a source from all modes of all loops, and calls cancelled`() throws {
        let other = try RunLoopThread(name: "other")
        let source = tracedSource
        for mode in [RunLoop.Mode.custom, .inner] { loop.add(source, forMode: mode) }
        other.runLoop.add(source, forMode: .outer)
        source.signal()
        #expect(trace.take().sorted() == ["in custom", "in inner", "in outer of another loop"])
        for _ in 0..<2 { source.invalidate() }
        #expect(trace.take().sorted() == ["out of custom", "out of inner", "out of outer of another loop"])
        #expect(!source.isSignalled && !source.isValid && !loop.contains(source, forMode: .custom))
        #expect(loop.poll(.custom) == .finished)
        loop.add(source, forMode: .default)
        source.signal()
        #expect(!source.isSignalled && loop.poll() == .finished)
        #expect(trace.all.isEmpty)
        other.stop()
    }

    // MARK: Signals

    @Test func `signals before the service coalesce, also before the source is added`() {
        let source = RunLoop.Source { trace("perform") }
        for _ in 0..<3 { source.signal() }
        loop.add(source, forMode: .default)
        for _ in 0..<3 { source.signal() }
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["perform"])
    }

    @Test func `a source that another one invalidates or removes in the same pass is not served`() {
        let victims = (2...3).map { order in loop.addSignalled(order: order) { trace("victim") } }
        loop.addSignalled(order: 1) {
            trace("first")
            victims[0].invalidate()
            loop.remove(victims[1], forMode: .default)
        }
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["first"])
        #expect(victims[1].isSignalled)
    }

    // MARK: The order of service

    @Test func `a source served in one mode, or by one loop, takes its place anew in the others`() throws {
        let other = try RunLoopThread(name: "other")
        let first = RunLoop.Source { trace("first \(loop.isCurrent)") }
        let second = RunLoop.Source { trace("second \(loop.isCurrent)") }
        for mode in [RunLoop.Mode.default, .custom] { loop.add(first, forMode: mode) }
        loop.add(second, forMode: .default)
        first.signal()
        loop.poll(.custom)
        for source in [second, first] { source.signal() }
        loop.poll()
        #expect(trace.take() == ["first true", "second true", "first true"])
        other.runLoop.add(first, forMode: .default)
        first.signal()
        // The first may run after the sources of its pass, the second before those of the next.
        for _ in 0..<3 { other.runLoop.performAndWait(inModes: [.default]) {} }
        #expect(trace.take() == ["first false"])
        loop.poll()
        #expect(trace.take() == [] && !first.isSignalled)
        other.runLoop.remove(first, forMode: .default)
        for source in [second, first] { source.signal() }
        loop.poll()
        #expect(trace.all == ["second true", "first true"])
        other.stop()
    }

    @Test func `a signalled source keeps its place when it moves to another mode`() {
        let first = loop.addSignalled(.custom) { trace("first") }
        loop.addSignalled { trace("second") }
        loop.poll(.inner)
        loop.remove(first, forMode: .custom)
        loop.add(first, forMode: .default)
        loop.poll()
        #expect(trace.all == ["first", "second"])
    }
}
