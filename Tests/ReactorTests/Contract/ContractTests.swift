import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Compares a loop with ``ContractModel``, in every state that the model can reach with a number of actions.
@Suite(.runLoop(timeLimit: .seconds(600))) struct ContractTests {
    private static let depth = Depth.of(full: 10, quick: 5)
    private static let walkCount = Depth.of(full: 20_000, quick: 300)

    /// What a program does at top level.
    private static let actions: [Action] = {
        let passes: [Action] = [.pass(.default), .pass(.tracking)]
        let changes: [Action] = [
            .scheduleTimer, .invalidateTimer, .scheduleRepeatingTimer, .invalidateRepeatingTimer,
            .post(.default),
            .post(.tracking), .addSource, .removeSource, .signal, .watch(inCommonModes: true),
            .watch(inCommonModes: false), .cancelWatching, .replacePipe, .write, .letTimePass,
        ]
        let ofOtherThreads: [Action] = [
            .post(.default), .signal, .invalidateTimer, .invalidateRepeatingTimer, .removeSource,
        ]
        return passes + changes + (passes + changes).map { .plan($0) }
            + ofOtherThreads.map { .plan(.elsewhere($0)) }
    }()

    @Test func `in every state the loop does what the contract says`() throws {
        try withVirtualTime { time in
            let replay = try ContractReplay(time)
            var known: Set<ContractModel.Key> = [ContractModel().key]
            var reached: [(model: ContractModel, actions: [Action])] = [(ContractModel(), [])]
            for _ in 0..<Self.depth {
                var next: [(ContractModel, [Action])] = []
                for (model, actions) in reached {
                    for action in Self.actions {
                        var after = model
                        after.perform(action)
                        guard after.isWithin(1) else { continue }
                        if known.insert(after.key).inserted { next.append((after, actions + [action])) }
                        guard after.observations.count > model.observations.count else { continue }
                        try #require(try replay.does(actions + [action], after.observations))
                    }
                }
                reached = next
            }
            #expect(known.count > 10_000)
        }
    }

    @Test func `long random programs do what the contract says`() throws {
        try withVirtualTime { time in
            let replay = try ContractReplay(time)
            for seed in seeds(Self.walkCount) {
                var generator = SeededGenerator(seed: seed)
                var (model, actions) = (ContractModel(), [Action]())
                while actions.count < 40 {
                    let action = Self.actions.randomElement(using: &generator)!
                    var next = model
                    next.perform(action)
                    guard next.isWithin(3) else { continue }
                    (model, actions) = (next, actions + [action])
                }
                try #require(try replay.does(actions, model.observations))
            }
        }
    }
}

private func isReadable(_ descriptor: FileDescriptor) -> Bool {
    var state = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return poll(&state, 1, 0) > 0
}

/// Does on a loop what a model does, and records what happens.
private final class ContractReplay {
    private let loop = RunLoop.current
    private let time: VirtualTime
    private var observations: [Observation] = []
    private var plan: [Action] = []
    private var timer: Timer?
    private var repeatingTimer: Timer?
    private var source: RunLoop.Source?
    private var watching: DescriptorSource?
    private var pipe: TestPipe
    private var blockCount = 0

    init(_ time: VirtualTime) throws {
        self.time = time
        pipe = try TestPipe()
    }

    /// Whether the loop does the same as the model, which has made `expected`.
    func does(_ actions: [Action], _ expected: [Observation]) throws -> Bool {
        defer { reset() }
        source = RunLoop.Source { [replay = Carrier(self)] in replay.value.call(.source) }
        for action in actions { try perform(action) }
        guard observations != expected else { return true }
        let text = "After \(actions) the loop does \(observations), and not \(expected)."
        Issue.record("\(text.replacing("ReactorTests.", with: ""))")
        return false
    }

    private func reset() {
        for timer in [timer, repeatingTimer] { timer?.invalidate() }
        source?.invalidate()
        watching?.cancel()
        (timer, repeatingTimer, source, watching, plan) = (nil, nil, nil, nil, [])
        for mode in [RunLoop.Mode.default, .tracking] { loop.run(in: mode, until: .distantPast) }
        pipe = (try? TestPipe()) ?? pipe
        (observations, blockCount) = ([], 0)
    }

    private func call(_ observation: Observation) {
        observations.append(observation)
        guard !plan.isEmpty else { return }
        do { try perform(plan.removeFirst()) } catch { Issue.record(error) }
    }

    private func perform(_ action: Action) throws {
        switch action {
        case .scheduleTimer:
            timer?.invalidate()
            timer = Timer.scheduled(after: .milliseconds(1)) { [self] _ in call(.timer) }
        case .invalidateTimer: timer?.invalidate()
        case .scheduleRepeatingTimer:
            repeatingTimer?.invalidate()
            repeatingTimer = Timer.scheduled(every: .milliseconds(2), forMode: .common) { [self] _ in
                call(.repeatingTimer)
            }
        case .invalidateRepeatingTimer: repeatingTimer?.invalidate()
        case .post(let mode):
            let number = blockCount
            blockCount += 1
            loop.perform(inModes: [mode.mode]) { [replay = Carrier(self)] in replay.value.call(.block(number))
            }
        case .addSource: loop.add(source!, forMode: .common)
        case .removeSource: loop.remove(source!, forMode: .common)
        case .signal: source!.signal()
        case .watch(let inCommonModes):
            watching?.cancel()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { [self] source, _ in
                let hasByte = isReadable(pipe.readEnd)
                if hasByte { pipe.get() }
                call(.descriptor(hasByte: hasByte))
            }
            try loop.add(source, forMode: inCommonModes ? .common : .default)
            watching = source
        case .cancelWatching: watching?.cancel()
        case .replacePipe:
            watching?.cancel()
            for end in [pipe.readEnd, pipe.writeEnd] { pipe.close(end) }
            pipe = try TestPipe()
        case .write: pipe.put()
        case .letTimePass: time.skip(.milliseconds(1))
        case .pass(let mode):
            let result = loop.run(in: mode.mode, until: .distantPast)
            observations.append(result == .finished ? .wasEmpty : .passed)
        case .elsewhere(let action):
            let replay = Carrier(self)
            try onAThread { try replay.value.perform(action) }
        case .plan(let action): plan.append(action)
        }
    }
}

extension Action.Mode {
    fileprivate var mode: RunLoop.Mode { self == .default ? .default : .tracking }
}
