import Reactor
import Synchronization

/// What the threads of one soak share: the loop, what is still to come, and what went wrong.
final class Soak: Sendable {
    static let modes: [RunLoop.Mode] = [.default, .tracking, .custom, .common]

    let loop: RunLoop
    /// Threads at work, and one-shots, blocks and repeating timers that are not over.
    let open = Atomic(0)
    /// Closures that have not been destroyed.
    let live = Atomic(0)
    let fired = Atomic(0)
    private let carriedHome: Carrier<Home>
    private let wrongs = Mutex<[String]>([])

    /// What only the loop's thread touches.
    final class Home {
        var generator: SeededGenerator
        var depth = 0

        init(seed: UInt64) { generator = SeededGenerator(seed: seed) }
    }

    init(seed: UInt64) {
        loop = .current
        carriedHome = Carrier(Home(seed: seed))
    }

    var faults: [String] { wrongs.withLock { $0 } }

    func check(_ isRight: Bool, _ fault: @autoclosure () -> String) {
        if !isRight { wrongs.withLock { $0.append(fault()) } }
    }

    func opened() { open.add(1, ordering: .relaxed) }
    func closed() { open.subtract(1, ordering: .relaxed) }

    /// Something for a closure to capture, which counts until the closure is destroyed.
    func canary(isHomeBound: Bool = false) -> AtEnd {
        live.add(1, ordering: .relaxed)
        return AtEnd { [self] in
            check(!isHomeBound || loop.isCurrent, "a closure was destroyed away from home")
            live.subtract(1, ordering: .relaxed)
        }
    }

    func checkMode(_ mode: RunLoop.Mode) {
        let current = loop.currentMode
        let isRight = mode == .common ? current == .default || current == .tracking : current == mode
        check(isRight, "called in \(current?.rawValue ?? "no mode"), not in \(mode)")
    }

    // MARK: On the loop's thread

    private var home: Home {
        precondition(loop.isCurrent)
        return carriedHome.value
    }

    /// Runs the loop in one mode after the other until nothing is to come.
    func run() {
        while open.load(ordering: .relaxed) > 0 { runOnce() }
    }

    /// What callouts do now and then.
    func nestSometimes() {
        let home = home
        guard home.depth < 3, Int.random(in: 0..<8, using: &home.generator) == 0 else { return }
        home.depth += 1
        runOnce()
        home.depth -= 1
    }

    func runOnce() {
        let home = home
        let mode = Self.modes[Int.random(in: 0..<3, using: &home.generator)]
        let microseconds = Int.random(in: 0..<400, using: &home.generator)
        let returns = Bool.random(using: &home.generator)
        loop.run(
            in: mode, until: .now + .microseconds(microseconds), returnAfterSourceHandled: returns)
    }
}

/// A timer that fires once, with what is known of it.
final class Promise: Sendable {
    let mode: RunLoop.Mode
    let date: Deadline
    /// Whether other threads may change its date and modes; of those, less is known.
    let isMovable: Bool
    private let soak: Soak
    private let firings = Atomic(0)
    private let isSettled = Atomic(false)
    private let isInvalidated = Atomic(false)
    private let isDead = Atomic(false)
    private let stored = Mutex<Timer?>(nil)

    init(_ soak: Soak, date: Deadline, mode: RunLoop.Mode, tolerance: Duration, isMovable: Bool) {
        (self.soak, self.date, self.mode, self.isMovable) = (soak, date, mode, isMovable)
        soak.opened()
        let canary = soak.canary()
        let timer = Timer(fireDate: date, tolerance: tolerance) { [self] _ in
            withExtendedLifetime(canary) { fire() }
        }
        stored.withLock { $0 = timer }
    }

    var timer: Timer { stored.withLock { $0! } }

    private func fire() {
        soak.check(isMovable || Deadline.now >= date, "a timer was early")
        soak.check(!isDead.load(ordering: .relaxed), "a timer fired that was invalidated at home")
        if !isMovable { soak.checkMode(mode) }
        firings.add(1, ordering: .relaxed)
        soak.fired.add(1, ordering: .relaxed)
        settle()
        soak.nestSometimes()
    }

    func invalidate() {
        isInvalidated.store(true, ordering: .relaxed)
        timer.invalidate()
        if soak.loop.isCurrent { isDead.store(true, ordering: .relaxed) }
        settle()
    }

    private func settle() {
        if !isSettled.exchange(true, ordering: .relaxed) { soak.closed() }
    }

    func checkEnd() {
        let count = firings.load(ordering: .relaxed)
        soak.check(count <= 1, "a one-shot fired \(count) times")
        soak.check(count == 1 || isInvalidated.load(ordering: .relaxed), "a one-shot never fired")
        soak.check(!timer.isValid, "a one-shot is valid at the end")
    }
}
