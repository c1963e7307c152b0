import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Work that an observer makes ready on its own loop.
enum ObserverWork: CaseIterable, Sendable {
    case openedStream, scheduledStream, readStream, readPair, descriptor, timer, block, orderedBlock, message

    /// Returns what makes the work ready; it then calls `serve`.
    fileprivate func prepare(
        _ loop: RunLoop, _ serve: @escaping @Sendable () -> Void
    ) throws -> () throws -> Void {
        switch self {
        case .openedStream, .scheduledStream, .readStream, .readPair: return prepareStream(loop, serve)
        case .descriptor:
            let item = try Kind.descriptor.makeItem(serve)
            return { try item.add(to: loop, .default) }
        case .timer: return { Timer.scheduled(after: .zero) { _ in serve() } }
        case .block: return { loop.perform(serve) }
        case .orderedBlock: return { loop.perform(order: 0, serve) }
        case .message:
            let mailbox = Mailbox<Int> { _, _ in serve() }
            return { mailbox.post(1) }
        }
    }

    private func prepareStream(_ loop: RunLoop, _ serve: @escaping () -> Void) -> () -> Void {
        var isPrepared = false
        let delegate = HandlerDelegate { _, event in
            if isPrepared, event == .hasBytesAvailable || event == .hasSpaceAvailable { serve() }
        }
        let isPair = self == .readPair
        let pair = Stream.boundPair(bufferSize: 1)
        let input = isPair ? pair.input : InputStream(data: [1, 2, 3])
        let observed: Stream = isPair ? pair.output : input
        observed.delegate = delegate
        if isPair { input.open() }
        if self != .openedStream { observed.open() }
        if self != .scheduledStream { observed.schedule(in: loop, forMode: .default) }
        if isPair { _ = pair.output.write([7]) }
        // The events so far are delivered before the observer is there.
        for _ in 0..<5 { loop.poll() }
        isPrepared = true
        return {
            withExtendedLifetime((delegate, observed)) {
                switch self {
                case .openedStream: input.open()
                case .scheduledStream: input.schedule(in: loop, forMode: .default)
                default: _ = input.read(upTo: 1)
                }
            }
        }
    }
}

@Suite(.runLoop) struct ObserverWorkTests {
    private let loop = RunLoop.current

    @Test(
        arguments: ObserverWork.allCases,
        [RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting])
    func `events that an observer makes ready are served without a sleep`(
        work: ObserverWork, activity: RunLoop.Activities
    ) throws {
        loop.hold(.default)
        let makeReady = try work.prepare(loop) { [loop] in loop.stop() }
        if activity == .afterWaiting { loop.perform(after: .milliseconds(1)) {} }
        loop.observeOnce(activity) {
            do { try makeReady() } catch { Issue.record(error) }
        }
        #expect(loop.run(in: .default, until: .minutesAway) == .stopped)
        withExtendedLifetime(makeReady) {}
    }

    @Test(
        arguments: [RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting],
        [Kind.source, .descriptor, .timer])
    func `an activation whose last item an observer removes does not sleep`(
        activity: RunLoop.Activities, kind: Kind
    ) throws {
        let pipe = try TestPipe()
        let item: any TestItem =
            switch kind {
            case .descriptor: DescriptorSource(pipe, Trace(), "")
            case .timer: Timer(interval: .seconds(1000)) { _ in }
            default: RunLoop.Source {}
            }
        try item.add(to: loop, .default)
        loop.observeOnce(activity) { item.invalidate() }
        #expect(loop.run(in: .default, until: .minutesAway) == .finished)
    }
}
