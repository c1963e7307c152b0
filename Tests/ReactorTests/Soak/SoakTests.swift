import Reactor
import ReactorTestSupport
import ReactorTesting
import Synchronization
import Testing

/// Timers, sources and blocks of random modes, from several threads, on a loop that switches modes and nests.
@Suite(.runLoop) struct SoakTests {
    @Test(arguments: 1...3 as ClosedRange<UInt64>)
    func `whatever other threads do, each timer keeps its promises and nothing is left`(seed: UInt64) throws {
        let (threads, steps) = (3, 1_000)
        let soak = Soak(seed: seed)
        let ended = Shared<[Promise]>([])
        for index in 0..<threads {
            soak.open.add(1, ordering: .relaxed)
            _ = try JoinableThread(name: "soak \(index)") {
                var worker = SoakWorker(soak, seed: seed &* 1_000 &+ UInt64(index))
                worker.run(steps: steps)
                ended.update { $0 += worker.oneShots }
                soak.open.subtract(1, ordering: .relaxed)
            }
        }
        while soak.open.load(ordering: .relaxed) > 0 { soak.runOnce() }
        for oneShot in ended.value { oneShot.checkEnd() }
        ended.value = []
        while soak.live.load(ordering: .relaxed) > 0, soak.faults.isEmpty { soak.runOnce() }
        #expect(soak.faults.prefix(5) == [])
        #expect(soak.fired.load(ordering: .relaxed) > threads * steps / 10)
    }
}

/// What the threads of one soak share: the loop, what is still to come, and what went wrong.
final class Soak: Sendable {
    static let modes: [RunLoop.Mode] = [.default, .tracking, .custom, .common]

    let loop = RunLoop.current
    /// Threads at work, and one-shots, blocks and repeating timers that are not over.
    let open = Atomic(0)
    /// Closures that have not been destroyed.
    let live = Atomic(0)
    let fired = Atomic(0)
    private let home: Carrier<Home>
    private let wrongs = Mutex<[String]>([])

    /// What only the loop's thread touches.
    private final class Home {
        var generator: SeededGenerator
        var depth = 0

        init(seed: UInt64) { generator = SeededGenerator(seed: seed) }
    }

    init(seed: UInt64) { home = Carrier(Home(seed: seed)) }

    var faults: [String] { wrongs.withLock { $0 } }

    func check(_ isRight: Bool, _ fault: @autoclosure () -> String) {
        if !isRight { wrongs.withLock { $0.append(fault()) } }
    }

    /// Something for a closure to capture, which counts until the closure is destroyed.
    func canary(isHomeBound: Bool = false) -> AtEnd {
        live.add(1, ordering: .relaxed)
        return AtEnd { [self] in
            check(!isHomeBound || loop.isCurrent, "a closure was destroyed on another thread")
            live.subtract(1, ordering: .relaxed)
        }
    }

    func checkMode(_ mode: RunLoop.Mode) {
        let current = loop.currentMode
        let isRight = mode == .common ? current == .default || current == .tracking : current == mode
        check(isRight, "called in \(current?.rawValue ?? "no mode"), not in \(mode)")
    }

    // MARK: On the loop's thread

    /// What callbacks do now and then.
    func nestSometimes() {
        let home = home.value
        guard home.depth < 3, Int.random(in: 0..<8, using: &home.generator) == 0 else { return }
        home.depth += 1
        runOnce()
        home.depth -= 1
    }

    func runOnce() {
        precondition(loop.isCurrent)
        let home = home.value
        let mode = Self.modes[Int.random(in: 0..<3, using: &home.generator)]
        let end = Deadline.now + .microseconds(Int.random(in: 0..<400, using: &home.generator))
        loop.run(in: mode, until: end, returnAfterSourceHandled: Bool.random(using: &home.generator))
    }
}

/// A timer that fires once, with what is known of it.
final class Promise: Sendable {
    /// Whether other threads may change its date and modes; of those, less is known.
    let isMovable: Bool
    private let soak: Soak
    private let state = Mutex(State())

    private struct State {
        var timer: Timer?
        var firings = 0
        var isSettled = false
        var isInvalidated = false
        /// Whether it was invalidated on the loop's thread: it must not fire after that.
        var isDead = false
    }

    init(_ soak: Soak, date: Deadline, mode: RunLoop.Mode, tolerance: Duration, isMovable: Bool) {
        (self.soak, self.isMovable) = (soak, isMovable)
        soak.open.add(1, ordering: .relaxed)
        let canary = soak.canary()
        let timer = Timer(fireDate: date, tolerance: tolerance) { [self] _ in
            withExtendedLifetime(canary) {
                soak.check(isMovable || Deadline.now >= date, "a timer was early")
                if !isMovable { soak.checkMode(mode) }
                settle { $0.firings += 1 }
                soak.fired.add(1, ordering: .relaxed)
                soak.check(!state.withLock { $0.isDead }, "a timer fired that was invalidated on the loop")
                soak.nestSometimes()
            }
        }
        state.withLock { $0.timer = timer }
    }

    var timer: Timer { state.withLock { $0.timer! } }

    func invalidate() {
        // Noted first: the timer may fire until it is invalid.
        state.withLock { $0.isInvalidated = true }
        timer.invalidate()
        settle { $0.isDead = $0.isDead || soak.loop.isCurrent }
    }

    private func settle(_ change: (inout State) -> Void) {
        let isFirst = state.withLock { state in
            change(&state)
            defer { state.isSettled = true }
            return !state.isSettled
        }
        if isFirst { soak.open.subtract(1, ordering: .relaxed) }
    }

    func checkEnd() {
        let (count, isInvalidated) = state.withLock { ($0.firings, $0.isInvalidated) }
        soak.check(count <= 1, "a one-shot fired \(count) times")
        soak.check(count == 1 || isInvalidated, "a one-shot never fired")
        soak.check(!timer.isValid, "a one-shot is valid at the end")
    }
}
