import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Which delegate receives events, and together with which others.
@Suite(.runLoop) struct StreamDeliveryTests {
    @Test func `a stream counts as a handled source, one stream at a time`() {
        let (one, two) = (Recorder(), Recorder())
        let streams = [InputStream(data: [1]), InputStream(data: [2])]
        streams[0].start(one)
        streams[1].start(two)
        #expect(RunLoop.current.run(mode: .default, before: .distantFuture))
        #expect(one.events.isEmpty != two.events.isEmpty)
        #expect(RunLoop.current.run(mode: .default, before: .distantFuture))
        #expect(one.events == [.openCompleted, .hasBytesAvailable] && two.events == one.events)
    }

    @Test func `two pipes that are ready need two calls, and lose nothing`() throws {
        let pipes = [try FileDescriptor.pipe(), try FileDescriptor.pipe()]
        let (recorder, loop) = (Recorder(), RunLoop.current)
        let streams = pipes.map { InputStream(descriptor: $0.readEnd, closeWhenDone: true) }
        for stream in streams { stream.start(recorder) }
        loop.serve { recorder.events.count == 2 }
        for pipe in pipes { try pipe.writeEnd.writeAll([1]) }
        #expect(loop.run(mode: .default, before: .distantFuture))
        #expect(recorder.events.count == 3)
        #expect(loop.run(mode: .default, before: .distantFuture))
        #expect(recorder.events.count == 4)
        for pipe in pipes { try pipe.writeEnd.close() }
    }

    @Test func `a read drops a pending event`() throws {
        let (pipe, recorder, loop) = (try FileDescriptor.pipe(), Recorder(), RunLoop.current)
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        input.start(recorder)
        loop.serve { recorder.events == [.openCompleted] }
        try pipe.writeEnd.writeAll([1, 2])
        #expect(input.read(upTo: 2) == [1, 2])
        loop.poll()
        #expect(recorder.events == [.openCompleted])
        try pipe.writeEnd.writeAll([3])
        loop.serve { recorder.events.count == 2 }
        try pipe.writeEnd.close()
    }

    @Test func `a handler that reads another stream drops that stream's pending event`() throws {
        let (one, two) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
        let (recorder, loop) = (Recorder(), RunLoop.current)
        let streams = [one, two].map { InputStream(descriptor: $0.readEnd, closeWhenDone: true) }
        for stream in streams { stream.start(recorder) }
        loop.serve { recorder.events.count == 2 }
        // Both are ready in the same pass; the one that is served first empties both.
        recorder.onEvent = { _, event in
            for stream in streams { #expect(stream.read(upTo: 10).count == 1) }
        }
        try one.writeEnd.writeAll([1])
        try two.writeEnd.writeAll([2])
        loop.poll()
        #expect(recorder.count(.hasBytesAvailable) == 1)
        for pipe in [one, two] { try pipe.writeEnd.close() }
    }

    @Test func `the delegate at the time of delivery receives the event`() throws {
        let (fixture, one, two) = (try Fixture(.bytes), Recorder(), Recorder())
        fixture.stream.start(one)
        one.onEvent = { stream, _ in stream.delegate = two }
        RunLoop.current.serve { two.events.count == 1 }
        #expect(one.events == [.openCompleted] && two.events == [.hasBytesAvailable])
    }

    @Test func `empty bytes are at their end as soon as they are open`() {
        let recorder = Recorder()
        let input = InputStream(data: [])
        input.start(recorder)
        #expect(input.streamStatus == .atEnd && !input.hasBytesAvailable && input.read(upTo: 1).isEmpty)
        RunLoop.current.serve { recorder.events.count == 2 }
        RunLoop.current.poll()
        #expect(recorder.events == [.openCompleted, .endEncountered])
    }

    @Test func `an error at opening is the only event`() {
        let recorder = Recorder()
        let input = InputStream(path: "/nowhere/at/all")
        input.start(recorder)
        RunLoop.current.serve { !recorder.events.isEmpty }
        RunLoop.current.poll()
        #expect(recorder.events == [.errorOccurred])
        #expect(RunLoop.current.passesInAWhile() < 10)
        input.close()
        #expect(RunLoop.current.run(in: .default) == .finished)
    }

    @Test(arguments: [true, false])
    func `a stream that always has room does not starve others`(isOneByOne: Bool) throws {
        let (pipe, writer, reader) = (try FileDescriptor.pipe(), Recorder(), Recorder())
        let output = OutputStream.toMemory()
        writer.onEvent = { _, event in if event == .hasSpaceAvailable { output.write([1]) } }
        output.start(writer)
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        reader.onEvent = { _, _ in RunLoop.current.stop() }
        RunLoop.current.serve { writer.count(.hasSpaceAvailable) > 3 }
        input.start(reader)
        RunLoop.current.serve { reader.count(.openCompleted) == 1 }
        try pipe.writeEnd.writeAll([1])
        while reader.count(.hasBytesAvailable) == 0 {
            RunLoop.current.run(in: .default, returnAfterSourceHandled: isOneByOne)
        }
        try pipe.writeEnd.close()
    }
}
