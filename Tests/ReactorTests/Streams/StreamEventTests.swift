import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct StreamEventTests {
    @Test(arguments: StreamKind.allCases, [StreamPlace.ownLoop, .queue])
    func `the opening is delivered first, whatever the order of the calls`(
        kind: StreamKind, place: StreamPlace
    ) throws {
        for first in 0..<3 {
            let (fixture, counter, stage) = (try Fixture(kind), Counter(), try StreamStage(place))
            let steps = [
                { fixture.stream.open() }, { fixture.stream.delegate = counter },
                { stage.schedule(fixture.stream) },
            ]
            for step in 0..<3 { steps[(first + step) % 3]() }
            stage.wait(for: counter) { $0.count == 2 }
            #expect(counter.events.value == [1, kind.transferEvent.rawValue])
            fixture.stream.close()
            try stage.settle()
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream that is always ready is served once in a pass`(kind: StreamKind) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        var inThisPass = 0
        let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in inThisPass = 0 }
        loop.add(observer, forMode: .default)
        recorder.onEvent = { [unowned recorder] _, event in
            guard event == kind.transferEvent else { return }
            inThisPass += 1
            // Once for its source, and once for the kernel's report.
            #expect(inThisPass <= 2)
            if recorder.events.count < 50 { fixture.move(1) }
        }
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count > 5 }
    }

    @Test(arguments: StreamKind.finite)
    func `the end is delivered once and last, and closing ends the loop`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        recorder.onEvent = { _, event in if event == kind.transferEvent { fixture.move(4) } }
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.last == .endEncountered }
        RunLoop.current.settle()
        #expect(fixture.stream.streamStatus == .atEnd && fixture.move(1) == 0)
        #expect(RunLoop.current.passesInAWhile() < 10)
        #expect(recorder.count(.endEncountered) == 1 && recorder.events.last == .endEncountered)
        fixture.stream.close()
        #expect(RunLoop.current.run(in: .default) == .finished)
    }

    @Test(arguments: StreamKind.allCases)
    func `a loop runs for a stream until its closing or one removal`(kind: StreamKind) throws {
        let loop = RunLoop.current
        for closes in [true, false] {
            let fixture = try Fixture(kind)
            for _ in 0..<3 { fixture.stream.schedule(in: loop, forMode: .default) }
            #expect(loop.poll(.default) == .timedOut)
            fixture.stream.open()
            #expect(loop.poll(.default) == .timedOut)
            if closes { fixture.stream.close() } else { fixture.stream.remove(from: loop, forMode: .default) }
            #expect(loop.poll(.default) == .finished)
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `a mode that a callback adds keeps a nested run from ending`(kind: StreamKind) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        recorder.onEvent = { stream, event in
            guard event == .openCompleted else { return }
            stream.schedule(in: loop, forMode: .tracking)
            #expect(loop.run(in: .tracking, until: .distantPast) == .timedOut)
        }
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count == 2 }
        fixture.stream.close()
    }

    @Test(arguments: StreamKind.allCases)
    func `scheduling again repeats a pending event, but not the opening`(kind: StreamKind) throws {
        let ((fixture, recorder), loop) = (try Fixture.started(kind), RunLoop.current)
        fixture.stream.remove(from: loop, forMode: .default)
        fixture.stream.schedule(in: loop, forMode: .tracking)
        loop.serve(in: .tracking) { recorder.events.count == 3 }
        loop.settle(in: .tracking)
        #expect(recorder.events == [.openCompleted, kind.transferEvent, kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream delivers each event once in one of its modes`(kind: StreamKind) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        for mode in [RunLoop.Mode.inner, .outer] { loop.hold(mode) }
        fixture.stream.start(recorder)
        fixture.stream.schedule(in: loop, forMode: .inner)
        loop.settle(in: .outer)
        #expect(recorder.events.isEmpty)
        loop.serve(in: .inner) { recorder.events.count == 2 }
        loop.settle()
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        fixture.move(1)
        loop.serve { recorder.events.count == 3 }
        loop.settle(in: .inner)
        #expect(recorder.events.count == 3)
    }

    @Test(arguments: StreamKind.allCases, [true, false])
    func `a stream in the common modes is served in later ones too`(
        kind: StreamKind, isRemoved: Bool
    ) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        let later = RunLoop.Mode("common later")
        fixture.stream.start(recorder, mode: .common)
        if isRemoved { fixture.stream.remove(from: loop, forMode: .default) }
        loop.serve(in: .tracking) { recorder.events.count == 2 }
        fixture.move(1)
        loop.addCommonMode(later)
        loop.serve(in: later) { recorder.events.count == 3 }
        #expect((loop.poll(.default) == .finished) == isRemoved)
        fixture.stream.remove(from: loop, forMode: .common)
        #expect(loop.poll(later) == .finished)
    }
}

@Suite(.runLoop) struct StreamStatusTests {
    @Test func `statuses, events and properties have Cocoa's numbers and names`() {
        let statuses: [Stream.Status] = [
            .notOpen, .opening, .open, .reading, .writing, .atEnd, .closed, .error,
        ]
        #expect(statuses.map(\.rawValue) == Array(0...7))
        let events: [Stream.Event] = [
            .openCompleted, .hasBytesAvailable, .hasSpaceAvailable, .errorOccurred, .endEncountered,
        ]
        #expect(events.map(\.rawValue) == [1, 2, 4, 8, 16])
        #expect("\([.openCompleted, .endEncountered] as Stream.Event)" == "[openCompleted, endEncountered]")
        let names: [(Stream.PropertyKey, String)] = [
            (.fileCurrentOffsetKey, "FileCurrentOffset"),
            (.shouldCloseNativeSocketKey, "ShouldCloseNativeSocket"),
            (.socketRemoteHostNameKey, "SocketRemoteHostName"),
            (.socketRemotePortNumberKey, "SocketRemotePortNumber"),
        ]
        for (key, name) in names { #expect(key.rawValue == "kCFStreamProperty" + name) }
    }

    @Test(arguments: StreamKind.opensAtOnce)
    func `a stream is opened and closed once, and moves bytes only in between`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let stream = fixture.stream!
        func expect(_ status: Stream.Status, _ step: () -> Void) {
            step()
            #expect(stream.streamStatus == status && fixture.isReady == (status == .open))
            #expect(fixture.moveOnce() == (status == .open ? 1 : -1) && stream.streamError == nil)
        }
        expect(.notOpen) { stream.close() }
        expect(.open) { stream.open() }
        expect(.open) { stream.open() }
        expect(.closed) { stream.close() }
        expect(.closed) { stream.close() }
        expect(.closed) { stream.open() }
    }

    @Test(arguments: StreamKind.allCases)
    func `moving no bytes changes nothing, and unknown properties cannot be set`(kind: StreamKind) throws {
        let (fixture, key) = (try Fixture(kind), Stream.PropertyKey("unknown"))
        #expect(!fixture.stream.setProperty(1, forKey: key))
        fixture.stream.open()
        for count in [0, -1] { #expect(fixture.moveOnce(count) == 0 && fixture.stream.streamStatus == .open) }
        #expect(!fixture.stream.setProperty(1, forKey: key) && fixture.stream.property(forKey: key) == nil)
    }
}
