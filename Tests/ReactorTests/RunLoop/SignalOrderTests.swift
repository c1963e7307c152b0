import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct SignalOrderTests {
    @Test func `a source served in one mode takes its place anew in the others`() async throws {
        let trace = try await traced { loop, trace in
            let (first, second) = (RunLoop.Source { trace("first") }, RunLoop.Source { trace("second") })
            for mode in [RunLoop.Mode.default, .custom] { loop.add(first, forMode: mode) }
            loop.add(second, forMode: .default)
            first.signal()
            loop.poll(.custom)
            second.signal()
            first.signal()
            loop.poll()
        }
        #expect(trace == ["first", "second", "first"])
    }

    @Test func `a source served by one loop takes its place anew in the others`() async throws {
        let other = try RunLoopThread(name: "other")
        let served = Trace()
        let trace = try await onItsOwnThread {
            let loop = RunLoop.current
            let first = RunLoop.Source { served("first \(loop.isCurrent)") }
            let second = RunLoop.Source { served("second \(loop.isCurrent)") }
            for each in [loop, other.runLoop] { each.add(first, forMode: .default) }
            loop.add(second, forMode: .default)
            first.signal()
            for _ in 0..<3 { other.runLoop.performAndWait(inModes: [.default]) {} }
            // So that the other loop cannot serve it once more.
            other.runLoop.performAndWait(inModes: [.default]) {
                RunLoop.current.remove(first, forMode: .default)
            }
            second.signal()
            first.signal()
            loop.poll()
            return served.all
        }
        other.stop()
        #expect(trace == ["first false", "second true", "first true"])
    }

    @Test func `a signalled source keeps its place when it moves to another mode`() async throws {
        let trace = try await traced { loop, trace in
            let (first, second) = (RunLoop.Source { trace("first") }, RunLoop.Source { trace("second") })
            loop.add(first, forMode: .custom)
            loop.add(second, forMode: .default)
            first.signal()
            second.signal()
            loop.poll(.inner)
            loop.remove(first, forMode: .custom)
            loop.add(first, forMode: .default)
            loop.poll()
        }
        #expect(trace == ["first", "second"])
    }

    @Test func `sources that signal each other take turns, a pass each`() async throws {
        let trace = try await traced { loop, trace in
            let other = Shared<RunLoop.Source?>(nil)
            let first = RunLoop.Source(order: 2) {
                trace("first")
                other.value?.signal()
                loop.poll(.custom)
            }
            let second = RunLoop.Source(order: 1) { trace("second") }
            other.value = second
            for source in [first, second] { loop.add(source, forMode: .default) }
            loop.hold(.custom)
            for source in [first, second] { source.signal() }
            loop.poll()
            trace("pass")
            loop.poll()
            other.value = nil
        }
        #expect(trace == ["second", "first", "pass", "second"])
    }
}
