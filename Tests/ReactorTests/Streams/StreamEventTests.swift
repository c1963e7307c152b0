import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamEventTests {
    @Test(arguments: StreamKind.allCases)
    func `the opening is delivered once, before bytes or space`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        fixture.stream.start(recorder)
        #expect(recorder.events.isEmpty)
        RunLoop.current.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `the order of delegate, schedule and open does not matter`(kind: StreamKind) throws {
        for first in 0..<3 {
            let (fixture, recorder) = (try Fixture(kind), Recorder())
            let steps = [
                { fixture.stream.open() },
                { fixture.stream.delegate = recorder },
                { fixture.stream.schedule(in: .current, forMode: .default) },
            ]
            for step in 0..<3 { steps[(first + step) % 3]() }
            RunLoop.current.serve { recorder.events.count == 2 }
            #expect(recorder.events == [.openCompleted, kind.transferEvent])
            fixture.stream.close()
        }
    }

    @Test(arguments: StreamKind.allCases)
    func `an event without a read or write is not repeated, and the loop sleeps`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.count == 2 }
        #expect(RunLoop.current.passesInAWhile() < 10)
        #expect(recorder.events.count == 2)
    }

    @Test(arguments: StreamKind.allCases)
    func `a read or write, even a late one, brings the next event`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.count == 2 }
        RunLoop.current.poll()
        fixture.move(1)
        RunLoop.current.serve { recorder.events.count == 3 }
        fixture.move(1)
        RunLoop.current.serve { recorder.events.count == 4 }
        #expect(recorder.events.dropFirst(2) == [kind.transferEvent, kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream that is always ready is served once in a pass`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        var inThisPass = 0
        let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in inThisPass = 0 }
        loop.add(observer, forMode: .default)
        recorder.onEvent = { [unowned recorder] _, event in
            if event == kind.transferEvent { inThisPass += 1 }
            // Once for its source, and once for the kernel's report.
            guard inThisPass <= 2, recorder.events.count < 50 else {
                Issue.record("called again in the same pass")
                return
            }
            if event == kind.transferEvent { fixture.move(1) }
        }
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count > 5 }
    }

    @Test(arguments: StreamKind.finite)
    func `the end is delivered once, after all other events`(kind: StreamKind) throws {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        recorder.onEvent = { _, event in if event == kind.transferEvent { fixture.move(4) } }
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.last == .endEncountered }
        RunLoop.current.poll()
        #expect(fixture.stream.streamStatus == .atEnd)
        #expect(recorder.count(.endEncountered) == 1 && recorder.events.last == .endEncountered)
        #expect(fixture.move(1) == 0)
        #expect(RunLoop.current.passesInAWhile() < 10)
    }

    @Test(arguments: StreamKind.allCases)
    func `a loop runs for a stream from its scheduling until its closing`(kind: StreamKind) throws {
        let (fixture, loop) = (try Fixture(kind), RunLoop.current)
        fixture.stream.schedule(in: loop, forMode: .default)
        #expect(loop.run(in: .default, until: .distantPast) == .timedOut)
        fixture.stream.open()
        while fixture.stream.streamStatus == .open, kind == .buffer { fixture.move(6) }
        #expect(loop.run(in: .default, until: .distantPast) == .timedOut)
        fixture.stream.close()
        #expect(loop.run(in: .default, until: .distantPast) == .finished)
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream is scheduled once, however often, and one removal undoes it`(
        kind: StreamKind
    ) throws {
        let (fixture, loop) = (try Fixture(kind), RunLoop.current)
        for _ in 0..<3 { fixture.stream.schedule(in: loop, forMode: .default) }
        fixture.stream.open()
        fixture.stream.remove(from: loop, forMode: .default)
        #expect(loop.run(in: .default, until: .distantPast) == .finished)
    }

    @Test(arguments: StreamKind.allCases)
    func `scheduling again repeats an event without a read or write, but not the opening`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        fixture.stream.start(recorder)
        loop.serve { recorder.events.count == 2 }
        loop.poll()
        fixture.stream.remove(from: loop, forMode: .default)
        fixture.stream.schedule(in: loop, forMode: .tracking)
        loop.serve(in: .tracking) { recorder.events.count == 3 }
        loop.poll(.tracking)
        #expect(recorder.events == [.openCompleted, kind.transferEvent, kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream in several modes delivers each event once`(kind: StreamKind) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        let other = RunLoop.Mode("streams in another mode")
        fixture.stream.start(recorder)
        fixture.stream.schedule(in: loop, forMode: other)
        loop.serve(in: other) { recorder.events.count == 2 }
        loop.poll()
        loop.poll(other)
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        fixture.move(1)
        loop.serve { recorder.events.count == 3 }
        loop.poll(other)
        #expect(recorder.events.count == 3)
    }

    @Test(arguments: StreamKind.allCases)
    func `a mode that the stream is not in delivers nothing`(kind: StreamKind) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        let other = RunLoop.Mode("streams are elsewhere")
        let timer = Timer.scheduled(every: .seconds(60), forMode: other) { _ in }
        fixture.stream.start(recorder)
        loop.poll(other)
        #expect(recorder.events.isEmpty)
        loop.serve { recorder.events.count == 2 }
        timer.invalidate()
    }

    @Test(arguments: StreamKind.allCases)
    func `a stream in the common modes is served in all of them, and in later ones`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        let later = RunLoop.Mode("common later")
        fixture.stream.start(recorder, mode: .common)
        loop.serve(in: .tracking) { recorder.events.count == 2 }
        fixture.move(1)
        loop.addCommonMode(later)
        loop.serve(in: later) { recorder.events.count == 3 }
        fixture.stream.remove(from: loop, forMode: .common)
        #expect(loop.run(in: later, until: .distantPast) == .finished)
    }

    @Test(arguments: StreamKind.allCases)
    func `a common stream that was removed from one mode joins modes that become common later`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        let later = RunLoop.Mode("common after a removal")
        fixture.stream.start(recorder, mode: .common)
        fixture.stream.remove(from: loop, forMode: .default)
        loop.addCommonMode(later)
        loop.serve(in: later) { recorder.events.count == 2 }
        #expect(loop.run(in: .default, until: .distantPast) == .finished)
    }
}
