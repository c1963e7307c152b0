/// What a program does with a loop, at top level or in a callback.
indirect enum Action: Hashable, Sendable {
    enum Mode: Hashable, Sendable { case `default`, tracking }

    /// A timer that fires once, after a unit of time, in the default mode. There is one: it replaces its predecessor.
    case scheduleTimer
    case invalidateTimer
    /// A timer that fires every two units, in the common modes. It replaces its predecessor.
    case scheduleRepeatingTimer
    case invalidateRepeatingTimer
    /// A block for one mode.
    case post(Mode)
    /// The source, which is in the common modes, or in none.
    case addSource
    case removeSource
    case signal
    /// The descriptor source of the current pipe, which replaces its predecessor: in the common modes, or in the default mode.
    case watch(inCommonModes: Bool)
    case cancelWatching
    /// Closes the pipe, whose numbers then belong to another one. What was watched is cancelled before.
    case replacePipe
    case write
    /// A unit of time passes before the loop looks.
    case letTimePass
    /// One pass of the loop, which is nested in a callback.
    case pass(Mode)
    /// Another thread does it, while this one waits.
    case elsewhere(Action)
    /// The next callback without a plan does it.
    case plan(Action)
}

/// What a program can observe.
enum Observation: Hashable, Sendable {
    case timer, repeatingTimer, source
    /// A block, by the number of those that were posted before it.
    case block(Int)
    /// The handler of a descriptor has read a byte, or found none.
    case descriptor(hasByte: Bool)
    /// A pass was made, or the mode was empty.
    case passed, wasEmpty
}

/// The contract of a loop, small enough to visit every state: a pass runs blocks, the signalled source, blocks again if that
/// was called, due timers by date, and the handler of the descriptor that is ready, and blocks again.
struct ContractModel {
    private struct TimerState: Hashable {
        var date: Int
        /// Its place among the timers of one date.
        var order: Int
    }

    fileprivate enum Watching: Hashable { case no, inDefaultMode, inCommonModes }

    private struct Block: Hashable {
        let mode: Action.Mode
        let number: Int
    }

    private(set) var observations: [Observation] = []
    private var plan: [Action] = []

    private var now = 0
    private var timer: TimerState?
    private var repeatingTimer: TimerState?
    private var lastOrder = 0
    private var blocks: [Block] = []
    private var blockCount = 0
    private var hasSource = false
    private var isSignalled = false
    private var watching = Watching.no
    private var byteCount = 0

    // What is in progress up the stack: nothing at top level.
    /// Whether the timer that fires is valid.
    private var isFiringTimer = false
    /// The generation of the repeating timer that fires.
    private var firing: Int?
    private var isPerforming = false
    /// The generation of the descriptor source whose handler is called.
    private var handling: Int?
    /// How many times each was replaced.
    private var repeatingTimerGeneration = 0
    private var watchGeneration = 0
    private var handleCount = 0

    /// What distinguishes this state from others at top level: what remains to happen, without when it is.
    struct Key: Hashable {
        fileprivate let dates: [Int?]
        fileprivate let isTimerFirst: Bool
        fileprivate let blocks: [Action.Mode]
        fileprivate let flags: [Bool]
        fileprivate let watching: Watching
        fileprivate let byteCount: Int
        fileprivate let plan: [Action]
    }

    var key: Key {
        Key(
            dates: [timer, repeatingTimer].map { $0.map { $0.date - now } },
            isTimerFirst: timer?.order ?? 0 < repeatingTimer?.order ?? 0, blocks: blocks.map(\.mode),
            flags: [hasSource, isSignalled], watching: watching, byteCount: byteCount, plan: plan)
    }

    /// Whether at most `limit` blocks, bytes and plans wait: one plan more if the first runs the loop, so that a nested pass
    /// has one, too.
    func isWithin(_ limit: Int) -> Bool {
        var planCount = plan.count
        if case .pass? = plan.first { planCount -= 1 }
        return max(blocks.count, byteCount, planCount) <= limit
    }

    // MARK: Actions

    mutating func perform(_ action: Action) {
        switch action {
        case .scheduleTimer: (timer, isFiringTimer) = (TimerState(date: now + 1, order: nextOrder()), false)
        case .invalidateTimer: (timer, isFiringTimer) = (nil, false)
        case .scheduleRepeatingTimer:
            repeatingTimerGeneration += 1
            repeatingTimer = TimerState(date: now + 2, order: nextOrder())
        case .invalidateRepeatingTimer:
            repeatingTimerGeneration += 1
            repeatingTimer = nil
        case .post(let mode):
            blocks.append(Block(mode: mode, number: blockCount))
            blockCount += 1
        case .addSource: hasSource = true
        case .removeSource: hasSource = false
        case .signal: isSignalled = true
        case .watch(let inCommonModes): watch(inCommonModes ? .inCommonModes : .inDefaultMode)
        case .cancelWatching: watch(.no)
        case .replacePipe:
            watch(.no)
            byteCount = 0
        case .write: byteCount += 1
        case .letTimePass: now += 1
        case .pass(let mode): pass(mode)
        case .elsewhere(let action): perform(action)
        case .plan(let action): plan.append(action)
        }
    }

    private mutating func nextOrder() -> Int {
        lastOrder += 1
        return lastOrder
    }

    private mutating func watch(_ watching: Watching) {
        watchGeneration += 1
        self.watching = watching
    }

    private mutating func call(_ observation: Observation) {
        observations.append(observation)
        if !plan.isEmpty { perform(plan.removeFirst()) }
    }

    // MARK: A pass

    private func isEmpty(_ mode: Action.Mode) -> Bool {
        !hasSource && repeatingTimer == nil && watching != .inCommonModes
            && (mode == .tracking || timer == nil && !isFiringTimer && watching == .no)
    }

    private mutating func pass(_ mode: Action.Mode) {
        guard !isEmpty(mode) || blocks.contains(where: { $0.mode == mode }) else {
            observations.append(.wasEmpty)
            return
        }
        runBlocks(mode)
        if hasSource, isSignalled, !isPerforming {
            performSource()
            runBlocks(mode)
        }
        let ready = isReady(mode) ? (watchGeneration, handleCount) : nil
        fireTimers(mode)
        // Unless a nested pass has served it.
        if let ready, ready == (watchGeneration, handleCount), handling != watchGeneration { handle() }
        runBlocks(mode)
        observations.append(.passed)
    }

    private mutating func runBlocks(_ mode: Action.Mode) {
        let batch = blocks.filter { $0.mode == mode }
        blocks.removeAll { $0.mode == mode }
        for block in batch { call(.block(block.number)) }
    }

    private mutating func performSource() {
        (isSignalled, isPerforming) = (false, true)
        call(.source)
        isPerforming = false
    }

    private func isReady(_ mode: Action.Mode) -> Bool {
        byteCount > 0 && (watching == .inCommonModes || watching == .inDefaultMode && mode == .default)
    }

    private mutating func handle() {
        let outer = handling
        handling = watchGeneration
        handleCount += 1
        let hasByte = byteCount > 0
        if hasByte { byteCount -= 1 }
        call(.descriptor(hasByte: hasByte))
        handling = outer
    }

    private mutating func fireTimers(_ mode: Action.Mode) {
        let (now, limit) = (now, lastOrder)
        func isDue(_ timer: TimerState) -> Bool { timer.date <= now && timer.order <= limit }
        while true {
            let once = mode == .default ? timer.flatMap { isDue($0) ? $0 : nil } : nil
            let mayRepeat = firing != repeatingTimerGeneration
            let repeating = mayRepeat ? repeatingTimer.flatMap { isDue($0) ? $0 : nil } : nil
            guard once != nil || repeating != nil else { return }
            if let once, repeating.map({ (once.date, once.order) < ($0.date, $0.order) }) ?? true {
                fireTimer()
            } else {
                fireRepeatingTimer()
            }
        }
    }

    private mutating func fireTimer() {
        let isOuter = !isFiringTimer
        (timer, isFiringTimer) = (nil, true)
        call(.timer)
        if isOuter { isFiringTimer = false }
    }

    private mutating func fireRepeatingTimer() {
        let (generation, outer) = (repeatingTimerGeneration, firing)
        firing = generation
        call(.repeatingTimer)
        firing = outer
        guard generation == repeatingTimerGeneration, var timer = repeatingTimer else { return }
        while timer.date <= now { timer.date += 2 }
        timer.order = nextOrder()
        repeatingTimer = timer
    }
}
