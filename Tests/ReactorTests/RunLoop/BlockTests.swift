import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct BlockTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `a block runs once, in the order of posting, in the first of its modes that runs`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let modes: [RunLoop.Mode] = [.default, .tracking, .custom, .inner, .outer]
        var common: Set<RunLoop.Mode> = [.default, .tracking]
        var waiting: [(name: Int, modes: [RunLoop.Mode])] = []
        for name in 0..<150 {
            let places = ([.common] + modes).filter { _ in Int.random(in: 0..<4, using: &generator) == 0 }
            loop.perform(inModes: places) { trace("\(name)") }
            waiting.append((name, places))
            if name == 100 {
                loop.addCommonMode(.custom)
                common.insert(.custom)
            }
            guard name % 3 == 0 else { continue }
            let running = modes.randomElement(using: &generator)!
            let runs = { (modes: [RunLoop.Mode]) in
                modes.contains(running) || modes.contains(.common) && common.contains(running)
            }
            let expected = waiting.filter { runs($0.modes) }.map { "\($0.name)" }
            waiting.removeAll { runs($0.modes) }
            #expect(loop.poll(running) == (expected.isEmpty ? .finished : .timedOut))
            #expect(trace.take() == expected)
        }
    }

    @Test func `a block that a block posts waits for the next sweep`() {
        loop.hold(.default)
        loop.perform {
            loop.perform {
                trace("posted by a")
                loop.perform { trace("posted by that") }
            }
            trace("a")
        }
        loop.perform { trace("b") }
        for _ in 0..<2 {
            loop.poll()
            trace("pass")
        }
        #expect(trace.all == ["a", "b", "posted by a", "pass", "posted by that", "pass"])
    }

    @Test func `a nested activation runs blocks posted meanwhile, and not the rest of the batch`() {
        loop.perform {
            trace("a begins")
            loop.perform { trace("c") }
            loop.poll()
            trace("a ends")
        }
        loop.perform { trace("b") }
        loop.poll()
        #expect(trace.all == ["a begins", "c", "a ends", "b"])
    }

    @Test(arguments: modeSets, modeSets)
    func `blocks that a block posts before and after a nested activation keep their order`(
        first: [RunLoop.Mode], second: [RunLoop.Mode]
    ) {
        for mode in [RunLoop.Mode.default, .inner] { loop.hold(mode) }
        loop.perform {
            loop.perform(inModes: first) { trace("first") }
            loop.poll(.inner)
            loop.perform(inModes: second) { trace("second") }
        }
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["first", "second"])
    }

    /// Modes of a block that the default mode runs.
    private static let modeSets: [[RunLoop.Mode]] = [
        [.default], [.common], [.custom, .default], [.outer, .default],
    ]

    /// Posts a block, and returns what becomes of what it captures.
    private func post(_ modes: [RunLoop.Mode], _ loop: RunLoop) -> Fate {
        let witness = Witness()
        loop.perform(inModes: modes) { withExtendedLifetime(witness) {} }
        return Fate(witness)
    }

    @Test(arguments: [[RunLoop.Mode.default], [.default, .custom]])
    func `a block is released as soon as it has run`(modes: [RunLoop.Mode]) {
        let fate = post(modes, loop)
        #expect(!fate.isFreed)
        loop.perform { #expect(fate.isFreed) }
        loop.poll()
    }

    @Test func `a block without any mode is dropped at once, others when their thread ends`() throws {
        #expect(post([], loop).isFreed)
        #expect(loop.poll() == .finished)
        let fates = Shared<[Fate]>([])
        try onAThread {
            fates.value = [[.custom], [.custom, .inner]].map { post($0, .current) }
            #expect(fates.value.allSatisfy { !$0.isFreed })
        }
        #expect(fates.value.map(\.isFreed) == [true, true])
    }

    @Test func `a burst from many threads arrives whole, each thread's in order`() throws {
        let (threads, perThread) = (4, 2000)
        let runs = Shared([[Int]](repeating: [], count: threads))
        let left = Shared(threads * perThread)
        let crowd = try JoinableThread(name: "crowd") {
            onThreads(threads) { thread in
                for index in 0..<perThread {
                    loop.perform {
                        runs.update { $0[thread].append(index) }
                        left.value -= 1
                        if left.value == 0 { loop.stop() }
                    }
                }
            }
        }
        loop.hold(.default)
        #expect(loop.run(in: .default) == .stopped)
        crowd.join()
        #expect(runs.value == Array(repeating: Array(0..<perThread), count: threads))
    }
}
