import Reactor
import ReactorTesting
import Testing

/// Work that an observer makes ready on its own loop, and that stops the loop when it is served.
enum ObserverWork: CaseIterable, Sendable {
    case openedStream, scheduledStream, readStream, readPair, descriptor, timer, block, orderedBlock, message
}

/// Everything that one piece of work needs to stay alive, and what makes it ready.
private struct Preparation {
    var kept: [AnyObject]
    let makeReady: () throws -> Void
}

extension ObserverWork {
    fileprivate func prepare(_ loop: RunLoop, _ trace: Trace) throws -> Preparation {
        let serve: @Sendable () -> Void = {
            trace("served")
            loop.stop()
        }
        switch self {
        case .openedStream, .scheduledStream, .readStream, .readPair: return prepareStream(loop, serve)
        case .descriptor:
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in serve() }
            return Preparation(kept: [pipe, source]) { try loop.add(source, forMode: .default) }
        case .timer: return Preparation(kept: []) { Timer.scheduled(after: .zero) { _ in serve() } }
        case .block: return Preparation(kept: []) { loop.perform(serve) }
        case .orderedBlock: return Preparation(kept: []) { loop.perform(order: 0, serve) }
        case .message:
            let mailbox = Mailbox<Int> { _, _ in serve() }
            return Preparation(kept: [mailbox]) { mailbox.post(1) }
        }
    }

    private func prepareStream(_ loop: RunLoop, _ serve: @escaping () -> Void) -> Preparation {
        let recorder = Recorder()
        let isPair = self == .readPair
        let pair = Stream.boundPair(bufferSize: 1)
        let input = isPair ? pair.input : InputStream(data: [1, 2, 3])
        let told: Stream = isPair ? pair.output : input
        told.delegate = recorder
        if isPair { input.open() }
        if self != .openedStream { told.open() }
        if self != .scheduledStream { told.schedule(in: loop, forMode: .default) }
        if isPair { _ = [7].withUnsafeBufferPointer { pair.output.write($0.baseAddress!, maxLength: 1) } }
        // What is to be told already is told before the observer is there.
        for _ in 0..<5 { loop.poll() }
        recorder.onEvent = { _, event in
            if event == .hasBytesAvailable || event == .hasSpaceAvailable { serve() }
        }
        return Preparation(kept: [recorder, input, told]) {
            switch self {
            case .openedStream: input.open()
            case .scheduledStream: input.schedule(in: loop, forMode: .default)
            default: _ = input.read(upTo: 1)
            }
        }
    }
}

@Suite(.runLoop) struct ObserverWorkTests {
    @Test(
        arguments: ObserverWork.allCases,
        [RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting])
    func `events that an observer makes ready are served without a sleep`(
        work: ObserverWork, activity: RunLoop.Activities
    ) async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let preparation = try work.prepare(loop, trace)
            if activity == .afterWaiting { loop.perform(after: .milliseconds(1)) {} }
            let observer = RunLoop.Observer(for: activity, repeats: false) { _, _ in
                do { try preparation.makeReady() } catch { trace("\(error)") }
            }
            loop.add(observer, forMode: .default)
            trace("\(loop.run(in: .default, until: .minutesAway))")
            withExtendedLifetime(preparation) {}
        }
        #expect(trace == ["served", "stopped"])
    }

    @Test(
        arguments: [RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting],
        [Kind.source, .descriptor, .timer])
    func `an activation whose last item an observer removes does not sleep`(
        activity: RunLoop.Activities, kind: Kind
    ) async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            let source = RunLoop.Source {}
            let descriptor = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
            let timer = Timer(interval: .seconds(1000)) { _ in }
            switch kind {
            case .source: loop.add(source, forMode: .default)
            case .descriptor: try loop.add(descriptor, forMode: .default)
            default: loop.add(timer, forMode: .default)
            }
            let observer = RunLoop.Observer(for: activity, repeats: false) { _, _ in
                source.invalidate()
                descriptor.cancel()
                timer.invalidate()
            }
            loop.add(observer, forMode: .default)
            trace("\(loop.run(in: .default, until: .minutesAway))")
        }
        #expect(trace == ["finished"])
    }
}
