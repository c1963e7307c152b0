import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct CommonModeTests {
    @Test(arguments: Kind.allCases)
    func `an item is in the modes that it was added to, in whatever order modes become common`(kind: Kind)
        throws
    {
        for seed in 0..<UInt64(80) {
            // A mode of a loop stays common: each walk needs another loop.
            try onAThread {
                let walk = try MembershipWalk(kind, seed: seed)
                for _ in 0..<12 { walk.step() }
            }
        }
    }

    @Test func `an item that was removed from each common mode is in the next mode that becomes common`()
        throws
    {
        try onAThread {
            let (loop, trace) = (RunLoop.current, Trace())
            let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in trace("observer") }
            loop.add(observer, forMode: .common)
            for mode in [RunLoop.Mode.default, .tracking] { loop.remove(observer, forMode: mode) }
            loop.addCommonMode(.custom)
            loop.hold(.custom)
            loop.run(in: .custom, until: .distantPast)
            #expect(trace.all == ["observer"])
        }
    }

    @Test(arguments: [true, false])
    func `a source that joins the common modes while a mode becomes common is scheduled in that mode`(
        isOnLoopThread: Bool
    ) throws {
        let trace = Trace()
        let thread = try RunLoopThread(name: "becoming common")
        let source = RunLoop.Source(
            scheduled: { loop, mode in
                if mode == .default { loop.addCommonMode(.custom) }
                trace(mode.rawValue)
            }, perform: {})
        let add = { @Sendable in thread.runLoop.add(source, forMode: .common) }
        if isOnLoopThread { thread.runLoop.performAndWait(add) } else { add() }
        thread.runLoop.performAndWait {}
        thread.stop()
        let modes: [RunLoop.Mode] = [.custom, .default, .tracking]
        #expect(trace.all.sorted() == modes.map(\.rawValue).sorted())
    }

    @Test func `a stream removed from a mode that another thread has made common stays out of it`() {
        let (loop, trace) = (RunLoop.current, Trace())
        for mode in [RunLoop.Mode.custom, .default] { loop.hold(mode) }
        let delegate = HandlerDelegate { _, event in trace("\(event)") }
        let input = InputStream(data: [1, 2, 3])
        input.delegate = delegate
        input.schedule(in: loop, forMode: .common)
        input.open()
        onThreads(1) { _ in loop.addCommonMode(.custom) }
        input.remove(from: loop, forMode: .custom)
        loop.poll(.custom)
        #expect(trace.all.isEmpty)
        for _ in 0..<3 { loop.poll() }
        #expect(trace.all == ["openCompleted", "hasBytesAvailable"])
        withExtendedLifetime(delegate) {}
    }
}

/// Adds an item to modes and removes it from them, at random, and compares with a model where it is and where it is served.
private final class MembershipWalk {
    private let loop = RunLoop.current
    private let trace = Trace()
    private let kind: Kind
    private let item: any TestItem
    private var generator: SeededGenerator
    private var steps: [String] = []

    // The model.
    private var common: Set<RunLoop.Mode> = [.default, .tracking]
    private var named: Set<RunLoop.Mode> = []
    /// The common modes that the item has left.
    private var excluded: Set<RunLoop.Mode> = []
    private var isCommon = false

    private var modes: Set<RunLoop.Mode> {
        named.union(isCommon ? common.subtracting(excluded).union([.common]) : [])
    }

    init(_ kind: Kind, seed: UInt64) throws {
        self.kind = kind
        generator = SeededGenerator(seed: seed)
        let trace = trace
        item =
            kind == .timer
            ? Timer(interval: .seconds(900), repeats: true) { _ in trace("served") }
            : try kind.makeItem { trace("served") }
        for mode in [RunLoop.Mode.default, .tracking, .custom] { loop.hold(mode) }
    }

    func step() {
        let mode = [RunLoop.Mode.default, .tracking, .custom, .common].randomElement(using: &generator)!
        let isElsewhere = Bool.random(using: &generator)
        switch Int.random(in: 0..<9, using: &generator) {
        case 0...3:
            steps.append("add \(mode)")
            add(mode, isElsewhere)
        case 4...7:
            steps.append("remove \(mode)")
            remove(mode, isElsewhere)
        default:
            steps.append("custom becomes common")
            becomeCommon(isElsewhere)
        }
        // Not always: the loop may still have to look at what other threads have changed.
        if Bool.random(using: &generator) { check() }
    }

    private func add(_ mode: RunLoop.Mode, _ isElsewhere: Bool) {
        if mode == .common {
            (isCommon, excluded) = (true, [])
            named.subtract(common)
        } else if isCommon, common.contains(mode) {
            excluded.remove(mode)
        } else {
            named.insert(mode)
        }
        apply(isElsewhere) { try? $0.add(to: $1, mode) }
    }

    private func remove(_ mode: RunLoop.Mode, _ isElsewhere: Bool) {
        if mode == .common {
            if isCommon { named.subtract(common) }
            (isCommon, excluded) = (false, [])
        } else {
            named.remove(mode)
            if isCommon, common.contains(mode) { excluded.insert(mode) }
        }
        apply(isElsewhere) { $0.remove(from: $1, mode) }
    }

    /// Changes the item here, or on another thread if it may be used there.
    private func apply(_ isElsewhere: Bool, _ change: @escaping @Sendable (any TestItem, RunLoop) -> Void) {
        guard isElsewhere, [.source, .timer].contains(kind) else { return change(item, loop) }
        let (carrier, loop) = (Carrier(item), loop)
        onThreads(1) { _ in change(carrier.value, loop) }
    }

    private func becomeCommon(_ isElsewhere: Bool) {
        common.insert(.custom)
        let loop = loop
        if isElsewhere {
            onThreads(1) { _ in loop.addCommonMode(.custom) }
        } else {
            loop.addCommonMode(.custom)
        }
    }

    private func check() {
        for mode in [RunLoop.Mode.common, .default, .tracking, .custom] {
            #expect(item.isIn(loop, mode) == modes.contains(mode), "\(mode) after \(steps)")
        }
        let running = [RunLoop.Mode.default, .tracking, .custom].randomElement(using: &generator)!
        (item as? RunLoop.Source)?.signal()
        (item as? Timer)?.fireDate = .distantPast
        _ = trace.take()
        loop.poll(running)
        #expect(trace.take().count == (modes.contains(running) ? 1 : 0), "\(running) after \(steps)")
    }
}
