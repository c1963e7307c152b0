import Reactor
import ReactorTesting
import Testing

/// One way in which an item can meet a change of modes.
struct ModeSwitch: Sendable, CustomTestStringConvertible {
    enum Item: CaseIterable, Sendable { case source, descriptor, timer, block }
    enum Place: CaseIterable, Sendable { case callback, observer, postedBlock }

    let item: Item
    /// The modes that the item is added to.
    let modes: [RunLoop.Mode]
    /// The mode that is switched to.
    let running: RunLoop.Mode
    /// Whether the activation in the new mode is nested in that in the old one, or follows it.
    let isNested: Bool
    let place: Place

    /// The model: an item is served in its modes, and for the common modes in each of those.
    var mustServe: Bool {
        modes.contains(running) || (modes.contains(.common) && [.default, .tracking].contains(running))
    }

    var testDescription: String {
        "\(item) of \(modes) in \(running), \(isNested ? "nested in" : "after") a \(place)"
    }

    static let all: [ModeSwitch] = Item.allCases.flatMap { item in
        memberships.flatMap { modes in
            [.default, .custom, .tracking, .inner].flatMap { running in
                ways.map { way in
                    ModeSwitch(
                        item: item, modes: modes, running: running, isNested: way.isNested, place: way.place)
                }
            }
        }
    }

    private static let memberships: [[RunLoop.Mode]] = [
        [.default], [.common], [.custom], [.tracking], [.default, .custom],
    ]

    private static let ways = Place.allCases.flatMap {
        [(place: $0, isNested: false), (place: $0, isNested: true)]
    }
}

@Suite(.runLoop) struct ModeMatrixTests {
    @Test(arguments: ModeSwitch.all)
    func `an item is served in its modes and in no other, in whatever order the loop runs them`(
        change: ModeSwitch
    )
        async throws
    {
        let trace = try await traced { loop, trace in
            for mode in [.outer, change.running] { loop.hold(mode) }
            let keptAlive = try change.makeItem(loop, trace)
            try change.arrange(loop) {
                trace("switched")
                if change.isNested { loop.poll(change.running) } else { loop.stop() }
            }
            loop.run(in: .outer, until: .minutesAway)
            if !change.isNested { loop.poll(change.running) }
            trace("later")
            for mode in change.modes { loop.poll(mode == .common ? .tracking : mode) }
            withExtendedLifetime(keptAlive) {}
        }
        #expect(
            trace == (change.mustServe ? ["switched", "served", "later"] : ["switched", "later", "served"]))
    }
}

extension ModeSwitch {
    /// Makes the item, ready to be served once, and adds it to its modes.
    fileprivate func makeItem(_ loop: RunLoop, _ trace: Trace) throws -> Any? {
        switch item {
        case .source:
            let source = RunLoop.Source { trace("served") }
            for mode in modes { loop.add(source, forMode: mode) }
            source.signal()
            return source
        case .descriptor:
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe, trace, "served")
            for mode in modes { try loop.add(source, forMode: mode) }
            return pipe
        case .timer:
            let timer = Timer(fireDate: .distantPast) { _ in trace("served") }
            for mode in modes { loop.add(timer, forMode: mode) }
            return timer
        case .block:
            loop.perform(inModes: modes) { trace("served") }
            return nil
        }
    }

    /// Has `turn` called once, in the outer mode, and that activation end afterwards.
    fileprivate func arrange(_ loop: RunLoop, _ turn: @escaping () -> Void) throws {
        let once = {
            turn()
            loop.stop()
        }
        switch place {
        case .callback: Timer.scheduled(after: .zero, forMode: .outer) { _ in once() }
        case .observer:
            let observer = RunLoop.Observer(for: .beforeSources, repeats: false) { _, _ in once() }
            loop.add(observer, forMode: .outer)
        case .postedBlock:
            let carrier = Carrier(once)  // it runs here, on the loop's thread
            try JoinableThread(name: "poster") { loop.perform(inModes: [.outer]) { carrier.value() } }.join()
        }
    }
}
