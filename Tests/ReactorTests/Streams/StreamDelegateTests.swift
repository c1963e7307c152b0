import Dispatch
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Which delegate receives an event, and when, if there was none at first.
@Suite(.runLoop) struct StreamDelegateTests {
    @Test(arguments: StreamKind.allCases)
    func `events that came without a delegate are delivered to the first one`(
        kind: StreamKind
    ) throws {
        let (fixture, recorder, loop) = (try Fixture(kind), Recorder(), RunLoop.current)
        fixture.stream.start(nil)
        repeat { loop.poll() } while fixture.stream.streamStatus == .opening
        fixture.stream.delegate = recorder
        loop.serve { recorder.events.count == 2 }
        loop.poll()
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
    }

    @Test(arguments: StreamKind.allCases)
    func `a ready stream without a delegate lets its loop sleep`(kind: StreamKind) throws {
        let (fixture, loop) = (try Fixture(kind), RunLoop.current)
        fixture.stream.start(nil)
        repeat { loop.poll() } while fixture.stream.streamStatus == .opening
        #expect(loop.passesInAWhile() < 10)
    }

    @Test func `the end and an error wait for a delegate`() {
        let (ended, failed, loop) = (Recorder(), Recorder(), RunLoop.current)
        let (empty, missing) = (InputStream(data: []), InputStream(path: "/nowhere/at/all"))
        empty.start(nil)
        missing.start(nil)
        loop.poll()
        (empty.delegate, missing.delegate) = (ended, failed)
        loop.serve { ended.events.count == 2 && failed.events.count == 1 }
        #expect(ended.events == [.openCompleted, .endEncountered] && failed.events == [.errorOccurred])
    }

    @Test func `events after a delegate's release are delivered to the next one`() throws {
        let (pipe, next, loop) = (try FileDescriptor.pipe(), Recorder(), RunLoop.current)
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        do {
            let first = Recorder()
            input.start(first)
            loop.serve { first.events == [.openCompleted] }
        }
        try pipe.writeEnd.writeAll([1])
        loop.poll()
        input.delegate = next
        loop.serve { !next.events.isEmpty }
        #expect(next.events == [.hasBytesAvailable])
        try pipe.writeEnd.close()
    }

    @Test(arguments: StreamKind.opensAtOnce)
    func `a new delegate receives an event that its predecessor did not act on`(kind: StreamKind) async throws
    {
        try await onItsOwnThread {
            let (fixture, first, second) = (try Fixture(kind), Recorder(), Recorder())
            fixture.stream.start(first)
            RunLoop.current.serve { first.events.count == 2 }
            fixture.stream.delegate = second
            RunLoop.current.serve { !second.events.isEmpty }
            RunLoop.current.poll()
            #expect(second.events == [kind.transferEvent] && first.events.count == 2)
        }
    }

    @Test func `setting the same delegate again repeats no event`() throws {
        let (fixture, recorder) = (try Fixture(.pipe), Recorder())
        fixture.stream.start(recorder)
        RunLoop.current.serve { recorder.events.count == 2 }
        fixture.stream.delegate = recorder
        RunLoop.current.poll()
        #expect(recorder.events.count == 2)
    }

    @Test func `a delegate that removes itself in a callback leaves the rest to the next`()
        async throws
    {
        try await onItsOwnThread {
            let (fixture, first, second) = (try Fixture(.bytes), Recorder(), Recorder())
            first.onEvent = { stream, _ in stream.delegate = nil }
            fixture.stream.start(first)
            RunLoop.current.serve { !first.events.isEmpty }
            RunLoop.current.poll()
            fixture.stream.delegate = second
            RunLoop.current.serve { !second.events.isEmpty }
            #expect(first.events == [.openCompleted] && second.events == [.hasBytesAvailable])
        }
    }

    @Test func `bytes that were read without a delegate are not delivered to a later one`() throws {
        let (pipe, recorder, loop) = (try FileDescriptor.pipe(), Recorder(), RunLoop.current)
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        try pipe.writeEnd.writeAll([1])
        input.start(nil)
        loop.poll()
        #expect(input.read(upTo: 10) == [1])
        input.delegate = recorder
        loop.serve { !recorder.events.isEmpty }
        loop.poll()
        #expect(recorder.events == [.openCompleted])
        try pipe.writeEnd.writeAll([2])
        loop.serve { recorder.events.last == .hasBytesAvailable }
        try pipe.writeEnd.close()
    }

    @Test func `closing a stream drops the events that wait for a delegate`() throws {
        let (fixture, recorder) = (try Fixture(.bytes), Recorder())
        fixture.stream.start(nil)
        RunLoop.current.poll()
        fixture.stream.close()
        fixture.stream.delegate = recorder
        RunLoop.current.poll()
        #expect(recorder.events.isEmpty)
    }

    @Test func `setting a delegate on another thread wakes the loop for it`() throws {
        let (fixture, recorder, loop) = (try Fixture(.pipe), Recorder(), RunLoop.current)
        fixture.stream.start(nil)
        loop.poll()
        nonisolated(unsafe) let (stream, delegate) = (fixture.stream!, recorder)
        let setter = try RunLoopThread(name: "setter")
        setter.runLoop.perform {
            while !loop.isWaiting {}
            stream.delegate = delegate
        }
        loop.serve { recorder.events.count == 2 }
        setter.stop()
    }

    @Test func `on a Dispatch queue, too, events wait for a delegate`() async throws {
        let (queue, recorder) = (DispatchQueue(label: "stream"), Recorder())
        let input = InputStream(data: [1])
        input.setDispatchQueue(queue)
        input.open()
        queue.sync {}
        nonisolated(unsafe) let delegate = recorder
        input.delegate = delegate
        waitUntil { queue.sync { delegate.events.count == 2 } }
        queue.sync { #expect(delegate.events == [.openCompleted, .hasBytesAvailable]) }
        input.close()
    }

    @Test func `a stream that is its own delegate receives events before and after another one`()
        async throws
    {
        try await onItsOwnThread {
            let (stream, other, loop) = (OwnDelegate(data: [1]), Recorder(), RunLoop.current)
            stream.start(nil)
            loop.serve { stream.events.count == 2 }
            stream.delegate = other
            loop.serve { other.events == [.hasBytesAvailable] }
            stream.delegate = nil
            #expect(stream.read(upTo: 1) == [1])
            loop.serve { stream.events.last == .endEncountered }
            #expect(other.events.count == 1)
        }
    }
}

private final class OwnDelegate: InputStream, StreamDelegate {
    var events: [Stream.Event] = []

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { events.append(eventCode) }
}
