import Reactor
import ReactorTesting
import Synchronization
import Testing

@Suite(.runLoop) struct SoakTests {
    /// Timers, sources and blocks of random modes, from several threads, on a loop that switches modes and nests.
    @Test(arguments: [1, 2, 3])
    func `whatever other threads do, each timer keeps its promises and nothing is left`(
        seed: UInt64
    ) async throws {
        let (threads, steps) = (3, 2_500)
        try await onItsOwnThread {
            let soak = Soak(seed: seed)
            let ended = Shared<[Promise]>([])
            for index in 0..<threads {
                soak.opened()
                _ = try JoinableThread(name: "soak \(index)") {
                    var worker = SoakWorker(soak, seed: seed &* 1_000 &+ UInt64(index))
                    worker.run(steps: steps)
                    ended.update { $0 += worker.oneShots }
                    soak.closed()
                }
            }
            soak.run()
            for oneShot in ended.value { oneShot.checkEnd() }
            ended.value = []
            while soak.live.load(ordering: .relaxed) > 0, soak.faults.isEmpty { soak.runOnce() }
            #expect(soak.faults.prefix(5) == [])
            #expect(soak.fired.load(ordering: .relaxed) > threads * steps / 10)
        }
    }
}
