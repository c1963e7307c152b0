import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Which delegate receives an event, and when, if there was none at first.
@Suite(.runLoop) struct StreamDelegateTests {
    private let loop = RunLoop.current

    @Test(arguments: StreamKind.allCases, [StreamPlace.ownLoop, .queue])
    func `a ready stream's events wait for a delegate, and its loop sleeps meanwhile`(
        kind: StreamKind, place: StreamPlace
    ) throws {
        let (fixture, counter, stage) = (try Fixture(kind), Counter(), try StreamStage(place))
        stage.schedule(fixture.stream)
        fixture.stream.open()
        repeat { try stage.settle() } while fixture.stream.streamStatus == .opening
        if place == .ownLoop { #expect(loop.passesInAWhile() < 10) }
        fixture.stream.delegate = counter
        stage.wait(for: counter) { $0.count == 2 }
        try stage.settle()
        #expect(counter.events.value == [1, kind.transferEvent.rawValue])
        fixture.stream.close()
    }

    @Test func `the end and an error wait for a delegate, and an error at opening is the only event`() {
        let (ended, failed) = (Recorder(), Recorder())
        let (empty, missing) = (InputStream(data: []), InputStream(path: "/nowhere/at/all"))
        for stream in [empty, missing] { stream.start(nil) }
        #expect(empty.streamStatus == .atEnd && !empty.hasBytesAvailable && empty.read(upTo: 1).isEmpty)
        loop.settle()
        (empty.delegate, missing.delegate) = (ended, failed)
        loop.serve { ended.events.count == 2 && failed.events.count == 1 }
        #expect(loop.passesInAWhile() < 10)
        #expect(ended.events == [.openCompleted, .endEncountered] && failed.events == [.errorOccurred])
        for stream in [empty, missing] { stream.close() }
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [StreamKind.pipe, .fifo, .socket, .connection])
    func `a loop sleeps while the end that the kernel reports waits for a delegate`(kind: StreamKind) throws {
        let (fixture, first, second) = (try Fixture(kind), Recorder(), Recorder())
        first.onEvent = { stream, event in
            guard event == .hasBytesAvailable else { return }
            fixture.move(4)
            if stream.streamStatus == .atEnd { stream.delegate = nil }
        }
        fixture.stream.start(first)
        loop.serve { fixture.stream.delegate == nil }
        loop.settle()
        #expect(loop.passesInAWhile() < 10)
        fixture.stream.delegate = second
        loop.serve { !second.events.isEmpty }
        #expect(second.events == [.endEncountered] && first.count(.endEncountered) == 0)
        fixture.stream.close()
    }

    @Test(arguments: StreamKind.opensAtOnce)
    func `an event that a delegate did not act on is delivered to the next one`(kind: StreamKind) throws {
        let ((fixture, first), second) = (try Fixture.started(kind), Recorder())
        fixture.stream.delegate = first
        loop.settle()
        #expect(first.events.count == 2)
        fixture.stream.delegate = second
        loop.serve { !second.events.isEmpty }
        loop.settle()
        #expect(second.events == [kind.transferEvent] && first.events.count == 2)
    }

    @Test(arguments: StreamKind.allCases, [true, false])
    func `a delegate may be replaced or removed in its callback`(kind: StreamKind, isReplaced: Bool) throws {
        let (fixture, first, second) = (try Fixture(kind), Recorder(), Recorder())
        first.onEvent = { stream, _ in stream.delegate = isReplaced ? second : nil }
        fixture.stream.start(first)
        loop.serve { !first.events.isEmpty }
        loop.settle()
        if !isReplaced { fixture.stream.delegate = second }
        loop.serve { !second.events.isEmpty }
        #expect(first.events == [.openCompleted] && second.events == [kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `a delegate may be released before its callback and in it`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        var recorder: Recorder? = Recorder()
        weak let known = recorder
        fixture.stream.start(recorder)
        recorder = nil
        #expect(known == nil && fixture.stream.delegate == nil)
        loop.settle()
        var deliveries = 0
        recorder = Recorder()
        recorder?.onEvent = { _, _ in
            deliveries += 1
            recorder = nil
        }
        fixture.stream.delegate = recorder
        loop.serve { deliveries > 0 }
        loop.settle()
        #expect(deliveries == 1 && recorder == nil)
    }

    @Test func `setting a delegate on another thread wakes the loop for it`() throws {
        let (fixture, recorder) = (try Fixture(.pipe), Recorder())
        fixture.stream.start(nil)
        loop.settle()
        nonisolated(unsafe) let (stream, delegate) = (fixture.stream!, recorder)
        let setter = try JoinableThread(name: "setter") { [loop] in
            loop.untilAsleep()
            stream.delegate = delegate
        }
        loop.serve { recorder.events.count == 2 }
        setter.join()
    }

    @Test func `a stream that is its own delegate receives events before and after another one`() {
        let (stream, other) = (OwnDelegate(data: [1]), Recorder())
        #expect(stream.delegate == nil)
        stream.start(nil)
        loop.serve { stream.events == [.openCompleted, .hasBytesAvailable] }
        stream.delegate = other
        loop.serve { other.events == [.hasBytesAvailable] }
        stream.delegate = nil
        #expect(stream.read(upTo: 1) == [1])
        loop.serve { stream.events.last == .endEncountered }
        #expect(other.events.count == 1)
    }
}

private final class OwnDelegate: InputStream, StreamDelegate {
    var events: [Stream.Event] = []

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { events.append(eventCode) }
}

/// How streams share a loop's passes.
@Suite(.runLoop) struct StreamDeliveryTests {
    private let loop = RunLoop.current

    @Test(arguments: [StreamKind.bytes, .pipe])
    func `a stream counts as a handled source, one stream at a time`(kind: StreamKind) throws {
        let started = [try Fixture.started(kind), try Fixture.started(kind)]
        for (fixture, _) in started { fixture.move(1) }
        for count in [5, 6] {
            #expect(loop.run(mode: .default, before: .distantFuture))
            #expect(started.map { $0.1.events.count }.reduce(0, +) == count)
        }
        #expect(started.map { $0.1.count(.hasBytesAvailable) } == [2, 2])
    }

    @Test func `a handler that reads another stream drops that stream's pending event`() throws {
        let (pipes, recorder) = ([try TestPipe(), try TestPipe()], Recorder())
        let streams = pipes.map { InputStream(descriptor: $0.readEnd) }
        for stream in streams { stream.start(recorder) }
        loop.serve { recorder.events.count == 2 }
        // Both are ready in the same pass; the one that is served first empties both.
        recorder.onEvent = { _, _ in for stream in streams { #expect(stream.read(upTo: 10).count == 1) } }
        for pipe in pipes { pipe.put() }
        loop.settle()
        #expect(recorder.count(.hasBytesAvailable) == 1)
        for stream in streams { stream.close() }
    }

    @Test(arguments: [true, false])
    func `a stream that always has room does not starve others`(isOneByOne: Bool) throws {
        let (pipe, writer, reader) = (try TestPipe(), Recorder(), Recorder())
        let output = OutputStream.toMemory()
        writer.onEvent = { _, event in if event == .hasSpaceAvailable { _ = output.write([1]) } }
        output.start(writer)
        let input = InputStream(descriptor: pipe.readEnd)
        reader.onEvent = { _, _ in RunLoop.current.stop() }
        loop.serve { writer.count(.hasSpaceAvailable) > 3 }
        input.start(reader)
        loop.serve { reader.count(.openCompleted) == 1 }
        pipe.put()
        while reader.count(.hasBytesAvailable) == 0 {
            loop.run(in: .default, returnAfterSourceHandled: isOneByOne)
        }
        input.close()
    }
}
