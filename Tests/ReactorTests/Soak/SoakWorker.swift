import Reactor
import ReactorTestSupport
import ReactorTesting
import Synchronization

/// One of the threads that keep a soak's loop busy. Its choices come from its seed; how the threads interleave does not.
struct SoakWorker {
    let soak: Soak
    var generator: SeededGenerator
    private(set) var oneShots: [Promise] = []
    private var sources: [RunLoop.Source] = []
    private let repeating = Shared<[Timer]>([])

    init(_ soak: Soak, seed: UInt64) {
        self.soak = soak
        generator = SeededGenerator(seed: seed)
    }

    mutating func run(steps: Int) {
        addSources()
        for _ in 0..<steps { step() }
        for source in sources { source.invalidate() }
        for timer in repeating.value { timer.invalidate() }
    }

    private mutating func step() {
        switch Int.random(in: 0..<12, using: &generator) {
        case 0...3: addOneShot()
        case 4: movable()?.timer.fireDate = .now + randomDelay() - .milliseconds(1)
        case 5: if let oneShot = movable() { changeMode(of: oneShot) }
        case 6: oneShots.randomElement(using: &generator)?.invalidate()
        case 7: invalidateAtHome()
        case 8: post()
        case 9: addRepeating()
        case 10: repeating.value.randomElement(using: &generator)?.tolerance = randomDelay()
        default: signal()
        }
    }

    private mutating func addOneShot() {
        let mode = randomMode()
        let oneShot = Promise(
            soak, date: .now + randomDelay(), mode: mode, tolerance: randomDelay(),
            isMovable: Bool.random(using: &generator))
        oneShots.append(oneShot)
        soak.loop.add(oneShot.timer, forMode: mode)
    }

    /// A recent one-shot that may be moved.
    private mutating func movable() -> Promise? {
        let oneShot = oneShots.suffix(50).randomElement(using: &generator)
        return oneShot?.isMovable == true ? oneShot : nil
    }

    private mutating func changeMode(of oneShot: Promise) {
        let mode = randomMode()
        soak.loop.add(oneShot.timer, forMode: mode)
        for other in Soak.modes where other != mode { soak.loop.remove(oneShot.timer, forMode: other) }
        soak.loop.add(oneShot.timer, forMode: mode)
    }

    /// After this has run, on the loop's thread, the timer must never fire.
    private mutating func invalidateAtHome() {
        guard let oneShot = oneShots.suffix(20).randomElement(using: &generator) else { return }
        post { oneShot.invalidate() }
    }

    private mutating func post(_ body: @escaping @Sendable () -> Void = {}) {
        let mode = randomMode()
        let (soak, canary) = (soak, soak.canary())
        soak.open.add(1, ordering: .relaxed)
        soak.loop.perform(inModes: [mode]) {
            soak.checkMode(mode)
            withExtendedLifetime(canary, body)
            soak.nestSometimes()
            soak.open.subtract(1, ordering: .relaxed)
        }
    }

    /// A repeating timer of the loop's own. Its closure must be destroyed on the loop's thread, though this thread may
    /// release the timer.
    private mutating func addRepeating() {
        let (mode, soak, repeating) = (randomMode(), soak, repeating)
        let interval = randomDelay() + .microseconds(200)
        post {
            let canary = soak.canary(isHomeBound: true)
            var dates: [Deadline] = []
            let timer = Timer.scheduled(every: interval, forMode: mode) { timer in
                withExtendedLifetime(canary) {
                    soak.checkMode(mode)
                    dates.append(timer.fireDate)
                    soak.check(dates.last! <= .now, "a repeating timer was early")
                    soak.check((dates.last! - dates[0]).isMultiple(of: interval), "the phase was lost")
                    if dates.count == 5 { timer.invalidate() }
                    soak.nestSometimes()
                }
            }
            repeating.update { $0.append(timer) }
        }
    }

    private mutating func addSources() {
        for mode in Soak.modes {
            let (soak, canary) = (soak, soak.canary())
            let source = RunLoop.Source {
                withExtendedLifetime(canary) { soak.checkMode(mode) }
                soak.nestSometimes()
            }
            soak.loop.add(source, forMode: mode)
            sources.append(source)
        }
    }

    private mutating func signal() {
        sources.randomElement(using: &generator)?.signal()
        soak.loop.wakeUp()
    }

    private mutating func randomMode() -> RunLoop.Mode { Soak.modes.randomElement(using: &generator)! }

    private mutating func randomDelay() -> Duration {
        .microseconds(Int.random(in: 0..<2_000, using: &generator))
    }
}
