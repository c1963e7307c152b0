import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct BlockTests {
    @Test func `blocks run in the order of posting, and only once`() async throws {
        let trace = try await traced { loop, trace in
            for name in ["a", "b", "c"] { loop.perform { trace(name) } }
            loop.poll()
            loop.poll()
        }
        #expect(trace == ["a", "b", "c"])
    }

    @Test func `perform without modes runs the block in the default mode`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform { trace("block") }
            for mode in [RunLoop.Mode.custom, .tracking] {
                loop.hold(mode)
                loop.poll(mode)
            }
            trace("not yet")
            loop.poll()
        }
        #expect(trace == ["not yet", "block"])
    }

    @Test func `blocks of other modes wait and keep their places`() async throws {
        let trace = try await traced { loop, trace in
            let modes: [RunLoop.Mode] = [.default, .custom, .default, .common, .custom, .default]
            for (index, mode) in modes.enumerated() { loop.perform(inModes: [mode]) { trace("\(index)") } }
            loop.poll(.custom)
            trace("default")
            loop.poll()
        }
        #expect(trace == ["1", "4", "default", "0", "2", "3", "5"])
    }

    @Test func `a block for the common modes runs in the modes that are common when it runs`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.custom)
            loop.perform(inModes: [.common]) { trace("block") }
            loop.poll(.custom)
            trace("becomes common")
            loop.addCommonMode(.custom)
            loop.poll(.custom)
        }
        #expect(trace == ["becomes common", "block"])
    }

    @Test func `a block of several modes runs in the first of them, and then no more`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform(inModes: [.custom, .default, .common]) { trace("block") }
            loop.poll(.custom)
            trace("\(loop.run(mode: .custom, before: .distantPast))")
            trace("\(loop.run(mode: .default, before: .distantPast))")
        }
        #expect(trace == ["block", "false", "false"])
    }

    @Test func `a block without any mode is dropped`() async throws {
        let trace = try await traced { loop, trace in
            let fate: Fate
            do {
                let witness = Witness()
                fate = Fate(witness)
                loop.perform(inModes: []) { withExtendedLifetime(witness) { trace("block") } }
            }
            trace("\(fate.isFreed)")
            trace("\(loop.run(mode: .default, before: .distantPast))")
        }
        #expect(trace == ["true", "false"])
    }

    @Test func `a block that a block posts waits for the next sweep`() async throws {
        let trace = try await traced { loop, trace in
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
        }
        #expect(trace == ["a", "b", "posted by a", "pass", "posted by that", "pass"])
    }

    @Test func `a nested activation runs blocks posted meanwhile, and not the rest of the batch`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.perform {
                trace("a begins")
                loop.perform { trace("c") }
                loop.poll()
                trace("a ends")
            }
            loop.perform { trace("b") }
            loop.poll()
        }
        #expect(trace == ["a begins", "c", "a ends", "b"])
    }

    @Test(arguments: modeSets, modeSets)
    func `blocks that a block posts before and after a nested activation keep their order`(
        first: [RunLoop.Mode], second: [RunLoop.Mode]
    ) async throws {
        let trace = try await traced { loop, trace in
            for mode in [RunLoop.Mode.default, .inner] { loop.hold(mode) }
            loop.perform {
                loop.perform(inModes: first) { trace("first") }
                loop.poll(.inner)
                loop.perform(inModes: second) { trace("second") }
            }
            for _ in 0..<2 { loop.poll() }
        }
        #expect(trace == ["first", "second"])
    }

    /// Modes of a block that the default mode runs.
    private static let modeSets: [[RunLoop.Mode]] = [
        [.default], [.common], [.custom, .default], [.outer, .default],
    ]

    @Test func `a block is released as soon as it has run`() async throws {
        let trace = try await traced { loop, trace in
            let fate: Fate
            do {
                let witness = Witness()
                fate = Fate(witness)
                loop.perform { withExtendedLifetime(witness) {} }
            }
            trace("\(fate.isFreed)")
            loop.perform { trace("\(fate.isFreed)") }
            loop.poll()
        }
        #expect(trace == ["false", "true"])
    }

    @Test func `a burst from many threads arrives whole, each thread's in order`() async throws {
        let perThread = 2000
        let runs = try await onItsOwnThread { () -> [[Int]] in
            let loop = RunLoop.current
            let runs = Shared([[Int]](repeating: [], count: 4))
            let threads = try (0..<4).map { thread in
                try JoinableThread(name: "poster") {
                    for index in 0..<perThread {
                        loop.perform { runs.update { $0[thread].append(index) } }
                    }
                }
            }
            loop.hold(.default)
            while runs.value.contains(where: { $0.count < perThread }) {
                loop.run(in: .default, until: .after(milliseconds: 1))
            }
            for thread in threads { thread.join() }
            return runs.value
        }
        for run in runs { #expect(run == Array(0..<perThread)) }
    }
}
