import Reactor
import ReactorTesting
import Testing

/// Where a mode becomes common while it runs.
enum ChangePlace: CaseIterable, Sendable {
    case entry, beforeTimers, beforeSources, beforeWaiting, afterWaiting, block, source, timer, descriptor
    case otherThread

    /// Has `change` carried out here, once, in the activation that comes.
    func arrange(_ loop: RunLoop, _ mode: RunLoop.Mode, _ change: @escaping @Sendable () -> Void) throws {
        switch self {
        case .entry: observe(.entry, loop, mode, change)
        case .beforeTimers: observe(.beforeTimers, loop, mode, change)
        case .beforeSources: observe(.beforeSources, loop, mode, change)
        case .beforeWaiting: observe(.beforeWaiting, loop, mode, change)
        case .afterWaiting:
            loop.perform(after: .milliseconds(1), inModes: [mode]) {}
            observe(.afterWaiting, loop, mode, change)
        case .block: loop.perform(inModes: [mode], change)
        case .source:
            let source = RunLoop.Source(perform: change)
            loop.add(source, forMode: mode)
            source.signal()
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
            observe(.beforeWaiting, loop, mode) {
                let thread = try? JoinableThread(name: "changing") { change() }
                thread?.join()
            }
        }
    }

    private func observe(
        _ activity: RunLoop.Activities, _ loop: RunLoop, _ mode: RunLoop.Mode,
        _ change: @escaping @Sendable () -> Void
    ) {
        let observer = RunLoop.Observer(for: activity, repeats: false) { _, _ in change() }
        loop.add(observer, forMode: mode)
    }
}

@Suite(.runLoop) struct RunningModeTests {
    @Test(arguments: ChangePlace.allCases, [Kind.source, .descriptor, .timer])
    func `a mode that becomes common while it runs serves the common items without a sleep`(
        place: ChangePlace, kind: Kind
    ) async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.custom)
            let pipe = try TestPipe()
            pipe.put()
            let serve: @Sendable () -> Void = {
                trace("served")
                loop.stop()
            }
            let source = RunLoop.Source(perform: serve)
            let descriptor = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in serve() }
            switch kind {
            case .source: loop.add(source, forMode: .common)
            case .descriptor: try loop.add(descriptor, forMode: .common)
            default: loop.perform(after: .zero, inModes: [.common], serve)
            }
            try place.arrange(loop, .custom) {
                loop.addCommonMode(.custom)
                guard kind == .source else { return }
                source.signal()
                loop.wakeUp()
            }
            trace("\(loop.run(in: .custom, until: .minutesAway))")
        }
        #expect(trace == ["served", "stopped"])
    }

    @Test func `a mode that becomes common in its last timer's callback keeps running for the common items`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.perform(after: .milliseconds(2), inModes: [.common]) {
                trace("common timer")
            }
            loop.perform(after: .zero, inModes: [.custom]) {
                trace("last own timer")
                loop.addCommonMode(.custom)
            }
            trace("\(loop.run(in: .custom, until: .minutesAway))")
        }
        #expect(trace == ["last own timer", "common timer", "finished"])
    }

    @Test func `a mode that becomes common runs the common modes' blocks in the same pass`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.custom)
            loop.perform(inModes: [.common]) {
                trace("common block")
                loop.stop()
            }
            loop.observe(.beforeSources, in: .common) { _ in trace("common observer") }
            loop.observe(.beforeTimers, in: .custom) { _ in loop.addCommonMode(.custom) }
            trace("\(loop.run(in: .custom, until: .minutesAway))")
        }
        #expect(trace == ["common observer", "common block", "stopped"])
    }

    @Test
    func `a block that waits for a mode which becomes common before the loop sleeps runs without a sleep`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.custom)
            loop.perform(inModes: [.common]) {
                trace("common block")
                loop.stop()
            }
            loop.observe(.beforeWaiting, in: .custom) { _ in loop.addCommonMode(.custom) }
            trace("\(loop.run(in: .custom, until: .minutesAway))")
        }
        #expect(trace == ["common block", "stopped"])
    }
}
