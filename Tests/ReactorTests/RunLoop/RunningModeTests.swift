import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// A place in an activation.
enum ChangePlace: CaseIterable, Sendable {
    case entry, beforeTimers, beforeSources, beforeWaiting, afterWaiting, block, source, timer, descriptor
    case otherThread

    /// Calls `change` here, once, in the next activation.
    func arrange(_ loop: RunLoop, _ mode: RunLoop.Mode, _ change: @escaping @Sendable () -> Void) throws {
        switch self {
        case .entry: loop.observeOnce(.entry, in: mode, change)
        case .beforeTimers: loop.observeOnce(.beforeTimers, in: mode, change)
        case .beforeSources: loop.observeOnce(.beforeSources, in: mode, change)
        case .beforeWaiting: loop.observeOnce(.beforeWaiting, in: mode, change)
        case .afterWaiting:
            loop.perform(after: .milliseconds(1), inModes: [mode]) {}
            loop.observeOnce(.afterWaiting, in: mode, change)
        case .block: loop.perform(inModes: [mode], change)
        case .source: loop.addSignalled(mode, change)
        case .timer: loop.perform(after: .zero, inModes: [mode], change)
        case .descriptor:
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                pipe.get()
                change()
            }
            try loop.add(source, forMode: mode)
        case .otherThread:
            loop.observeOnce(.beforeWaiting, in: mode) { onThreads(1) { _ in change() } }
        }
    }
}

@Suite(.runLoop) struct RunningModeTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// - Parameter kind: What waits in the common modes: an item, or a block.
    @Test(arguments: ChangePlace.allCases, [Kind.source, .descriptor, .timer, nil])
    func `a mode that becomes common while it runs serves the common items without a sleep`(
        place: ChangePlace, kind: Kind?
    ) throws {
        loop.hold(.custom)
        let serve = { @Sendable in
            trace("served")
            loop.stop()
        }
        let item = try kind?.makeItem(serve)
        try item?.add(to: loop, .common)
        if item == nil { loop.perform(inModes: [.common], serve) }
        let source = item as? RunLoop.Source
        try place.arrange(loop, .custom) {
            loop.addCommonMode(.custom)
            source?.signal()
            if source != nil { loop.wakeUp() }
        }
        #expect(loop.run(in: .custom, until: .minutesAway) == .stopped)
        #expect(trace.all == ["served"])
    }

    @Test func `a mode that becomes common in its last timer's callback keeps running for the common items`()
    {
        withVirtualTime { _ in
            loop.perform(after: .seconds(2), inModes: [.common]) { trace("common timer") }
            loop.perform(after: .zero, inModes: [.custom]) {
                trace("last own timer")
                loop.addCommonMode(.custom)
            }
            #expect(loop.run(in: .custom, until: .minutesAway) == .finished)
            #expect(trace.all == ["last own timer", "common timer"])
        }
    }
}
