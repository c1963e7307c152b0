import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct LostWakeUpTests {
    @Test func `a wake-up that a nested activation has consumed counts for the outer one, too`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.outer)
            loop.hold(.inner)
            let source = RunLoop.Source {
                trace("source")
                loop.stop()
            }
            loop.add(source, forMode: .outer)
            let observer = RunLoop.Observer(for: .beforeWaiting, repeats: false) { _, _ in
                source.signal()
                loop.wakeUp()
                loop.poll(.inner)
            }
            loop.add(observer, forMode: .outer)
            loop.run(in: .outer)
        }
        #expect(trace == ["source"])
    }

    @Test func `a block posted for the outer mode during a nested activation runs without a sleep`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.outer)
            loop.hold(.inner)
            loop.perform(inModes: [.outer]) {
                loop.perform(inModes: [.outer]) {
                    trace("block")
                    loop.stop()
                }
                for _ in 0..<2 { loop.poll(.inner) }
            }
            trace("\(loop.run(in: .outer))")
        }
        #expect(trace == ["block", "stopped"])
    }

    @Test func `no wake-up is lost when two threads take turns`() async throws {
        let rounds = 2000
        let other = try RunLoopThread(name: "other side")
        let count = try await onItsOwnThread {
            let loop = RunLoop.current
            loop.hold(.default)
            let count = Shared(0)
            @Sendable func turn() {
                guard
                    count.update({
                        $0 += 1
                        return $0
                    }) < rounds
                else { return loop.stop() }
                other.runLoop.perform { loop.perform(turn) }
            }
            turn()
            loop.run(in: .default)
            return count.value
        }
        other.stop()
        #expect(count == rounds)
    }
}
