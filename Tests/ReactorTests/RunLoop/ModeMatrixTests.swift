import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// One way in which an item can meet a change of modes.
struct ModeSwitch: Sendable, CustomTestStringConvertible {
    enum Item: CaseIterable, Sendable { case source, descriptor, timer, block, message }
    let item: Item
    /// The modes that the item is added to.
    let modes: [RunLoop.Mode]
    /// The mode that is switched to.
    let running: RunLoop.Mode
    /// Whether the activation in the new mode is nested in that in the old one, or follows it.
    let isNested: Bool
    let place: ChangePlace

    /// The model: an item is served in its modes, and for the common modes in each of those.
    var mustServe: Bool {
        modes.contains(running) || (modes.contains(.common) && [.default, .tracking].contains(running))
    }

    var testDescription: String {
        "\(item) of \(modes) in \(running), \(isNested ? "nested in" : "after") a \(place)"
    }

    private static let memberships: [[RunLoop.Mode]] = [
        [.default], [.common], [.custom], [.tracking], [.default, .custom],
    ]

    static let all: [ModeSwitch] = Item.allCases.flatMap { item in
        memberships.flatMap { modes in
            [.default, .custom, .tracking, .inner].flatMap { running in
                [ChangePlace.timer, .beforeSources, .block].flatMap { place in
                    [false, true].map { isNested in
                        ModeSwitch(
                            item: item, modes: modes, running: running, isNested: isNested, place: place)
                    }
                }
            }
        }
    }
}

@Suite(.runLoop) struct ModeMatrixTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test(arguments: ModeSwitch.all)
    func `an item is served in its modes and in no other, in whatever order the loop runs them`(
        change: ModeSwitch
    ) throws {
        for mode in [.outer, change.running] { loop.hold(mode) }
        let kept = try addItem(change)
        try change.place.arrange(loop, .outer) {
            trace("switched")
            if change.isNested { loop.poll(change.running) }
            loop.stop()
        }
        loop.run(in: .outer, until: .minutesAway)
        if !change.isNested { loop.poll(change.running) }
        trace("later")
        for mode in change.modes { loop.poll(mode == .common ? .tracking : mode) }
        withExtendedLifetime(kept) {}
        let expected = change.mustServe ? ["switched", "served", "later"] : ["switched", "later", "served"]
        #expect(trace.all == expected)
    }

    /// Makes the item, ready to be served once, and adds it to its modes.
    private func addItem(_ change: ModeSwitch) throws -> Any? {
        switch change.item {
        case .source, .timer:
            let kind: Kind = change.item == .source ? .source : .timer
            let item = try kind.makeItem { trace("served") }
            for mode in change.modes { try item.add(to: loop, mode) }
            return item
        case .descriptor:
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe, trace, "served")
            for mode in change.modes { try loop.add(source, forMode: mode) }
            return pipe
        case .block:
            loop.perform(inModes: change.modes) { trace("served") }
            return nil
        case .message:
            let mailbox = Mailbox<Int>(inModes: change.modes) { _, _ in trace("served") }
            mailbox.post(1)
            return mailbox
        }
    }
}
