import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Several timers that are due in one pass, and timers in several modes.
@Suite(.runLoop) struct TimerBatchTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test func `timers fire by date, equal dates in the order of adding, whatever is set or added again`() {
        withVirtualTime { time in
            let timers = [30, 10, 20, 10, 0, 20, 10, 0, 30].enumerated().map { index, offset in
                let timer = Timer(fireDate: .now + .microseconds(offset)) { _ in trace("\(index)") }
                loop.add(timer, forMode: index % 2 == 0 ? .default : .common)
                return timer
            }
            loop.add(timers[4], forMode: .default)
            for tolerance in [Duration.milliseconds(1), .zero] { timers[1].tolerance = tolerance }
            time.skip(.microseconds(30))
            loop.poll()
            #expect(trace.all == ["4", "7", "1", "3", "6", "2", "5", "0", "8"])
        }
    }

    @Test(arguments: 0..<10 as Range<UInt64>)
    func `timers fire by date in the modes that they are in, wherever threads have put them`(seed: UInt64) {
        withVirtualTime { time in
            var walk = TimerWalk(seed: seed)
            for _ in 0..<60 { walk.step() }
            time.skip(.seconds(7200))
            walk.check()
        }
    }

    @Test func `a timer that an earlier one of the batch changes still fires in it if it is due`() {
        let other = Timer(fireDate: .distantFuture) { _ in trace("other") }
        let first = Timer(fireDate: .now) { _ in
            other.tolerance = .milliseconds(3)
            loop.add(other, forMode: .default)
            trace("first")
        }
        other.fireDate = .now
        for timer in [other, first] { loop.add(timer, forMode: .default) }
        loop.poll()
        #expect(trace.all == ["first", "other"])
    }

    @Test(arguments: [false, true])
    func `a timer that an earlier one, or another thread, changes in the batch does not fire in it`(
        isElsewhere: Bool
    ) {
        let names = ["invalidated", "removed", "moved", "returned", "left alone"]
        let victims = names.map { name in Timer(fireDate: .distantFuture) { _ in trace(name) } }
        let change = { @Sendable in
            victims[0].invalidate()
            victims[2].fireDate = .distantFuture
            for victim in victims[1...3] where victim !== victims[2] {
                loop.remove(victim, forMode: .default)
            }
            loop.add(victims[3], forMode: .default)
        }
        let first = Timer(fireDate: .now) { _ in
            if isElsewhere { onThreads(1) { _ in change() } } else { change() }
        }
        for victim in victims { victim.fireDate = .now }
        for timer in victims + [first] { loop.add(timer, forMode: .default) }
        loop.poll()
        #expect(trace.take() == ["left alone"])
        #expect(victims.map(\.isValid) == [false, true, true, true, false])
        loop.poll()
        #expect(trace.all == ["returned"])
    }

    @Test func `a timer added by a timer waits for the next pass, however old its date`() {
        let added = Timer(fireDate: .now - .seconds(1)) { _ in trace("added") }
        Timer.scheduled(after: .zero) { _ in loop.add(added, forMode: .default) }
        loop.poll()
        #expect(trace.all.isEmpty)
        loop.poll()
        #expect(trace.all == ["added"])
    }

    @Test func `a repeating timer fires once in a pass, however short its interval`() {
        withVirtualTime { time in
            let timer = Timer.scheduled(every: .zero) { _ in
                trace("fired")
                time.skip(.seconds(1))
            }
            time.skip(timer.interval)
            loop.poll()
            #expect(trace.all == ["fired"])
        }
    }

    @Test
    func `a timer does not fire within its own callback, nor wake a nested wait, and keeps its mode busy`() {
        withVirtualTime { _ in
            var (depth, passes) = (0, 0)
            loop.observe(.beforeTimers) { _ in passes += depth }
            let interval = Duration.milliseconds(2)
            let timer = Timer.scheduled(every: interval) { _ in
                trace("called")
                depth += 1
                #expect(loop.run(in: .default, until: .after(milliseconds: 5)) == .timedOut)
                depth -= 1
                loop.stop()
            }
            let first = timer.fireDate
            #expect(loop.run(in: .default) == .stopped)
            #expect(trace.all == ["called"])
            #expect(passes <= 3)
            #expect(timer.fireDate == first + interval * 3)
        }
    }

    // MARK: Modes

    @Test func `a timer in several modes has one date, which firing in one moves in all`() {
        var modes: [RunLoop.Mode?] = []
        let timer = Timer.scheduled(every: .seconds(60), forMode: .custom) { _ in
            modes.append(loop.currentMode)
        }
        for mode in [RunLoop.Mode.modalPanel, .common] { loop.add(timer, forMode: mode) }
        for mode in [RunLoop.Mode.modalPanel, .default] {
            timer.fireDate = .now
            for each in [mode, .custom, .modalPanel, .tracking, .default] { loop.poll(each) }
        }
        timer.invalidate()
        #expect(loop.poll(.custom) == .finished)
        #expect(modes == [.modalPanel, .default])
    }

    @Test func `an overdue timer of another mode neither fires nor wakes the loop`() {
        withVirtualTime { _ in
            var passes = 0
            Timer.scheduled(every: .milliseconds(1), forMode: .custom) { _ in Issue.record("fired") }
            loop.hold(.default)
            loop.observe(.beforeTimers) { _ in passes += 1 }
            #expect(loop.run(in: .default, until: .minutesAway) == .timedOut)
            #expect(passes <= 2)
        }
    }
}

/// Adds timers to modes, moves and removes them at random, here or on another thread, and compares with a model which of them
/// fire where.
private struct TimerWalk {
    private let loop = RunLoop.current
    private let trace = Trace()
    private let origin = Deadline.now + .seconds(3600)
    private var generator: SeededGenerator
    private var timers: [Timer] = []
    private var offsets: [Int]
    private var modes: [Set<RunLoop.Mode>]

    init(seed: UInt64) {
        generator = SeededGenerator(seed: seed)
        (offsets, modes) = (Array(0..<8), Array(repeating: [], count: 8))
        for offset in offsets {
            timers.append(Timer(fireDate: origin + .microseconds(offset)) { [trace] _ in trace("\(offset)") })
        }
    }

    mutating func step() {
        let index = Int.random(in: 0..<timers.count, using: &generator)
        let mode = [RunLoop.Mode.default, .tracking, .custom, .common].randomElement(using: &generator)!
        let (timer, loop) = (timers[index], loop)
        var change: @Sendable () -> Void
        switch Int.random(in: 0..<6, using: &generator) {
        case 0...2:
            if mode == .common {
                modes[index].formUnion([.default, .tracking])
            } else {
                modes[index].insert(mode)
            }
            change = { loop.add(timer, forMode: mode) }
        case 3:
            // From every mode: what is left of a common membership is `CommonModeTests`' subject.
            modes[index] = []
            change = {
                for mode in [RunLoop.Mode.common, .default, .tracking, .custom] {
                    loop.remove(timer, forMode: mode)
                }
            }
        default:
            offsets[index] = (offsets.max() ?? 0) + 1
            let date = origin + .microseconds(offsets[index])
            change = { timer.fireDate = date }
        }
        if Int.random(in: 0..<8, using: &generator) == 0 {
            onThreads(1) { [change] _ in change() }
        } else {
            change()
        }
    }

    mutating func check() {
        for mode in [RunLoop.Mode.custom, .inner, .tracking, .default].shuffled(using: &generator) {
            let due = timers.indices.filter { modes[$0].contains(mode) }.sorted { offsets[$0] < offsets[$1] }
            loop.poll(mode)
            #expect(trace.take() == due.map { "\($0)" }, "\(mode)")
            for index in due { modes[index] = [] }
        }
    }
}
