import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Connections that fail.
@Suite(.runLoop) struct SocketStreamConnectingTests {
    @Test(arguments: AddressKind.allCases)
    func `a refusal is delivered once to each half that is opened`(
        kind: AddressKind
    )
        async throws
    {
        try await onItsOwnThread {
            let (reader, writer, loop) = (Recorder(), Recorder(), RunLoop.current)
            let pair = Stream.connection(to: try refusingAddress(kind))
            let error = kind == .path ? Errno.noSuchFileOrDirectory : .connectionRefused
            pair.output.delegate = writer
            pair.output.schedule(in: loop, forMode: .default)
            pair.input.start(reader)
            loop.serve { !reader.events.isEmpty }
            loop.poll()
            #expect(reader.events == [.errorOccurred] && writer.events.isEmpty)
            #expect(pair.input.streamErrno == error && pair.output.streamStatus == .notOpen)
            pair.output.open()
            loop.serve { !writer.events.isEmpty }
            loop.poll()
            #expect(writer.events == [.errorOccurred] && reader.events == [.errorOccurred])
            #expect(pair.output.streamErrno == error && loop.passesInAWhile() < 10)
            #expect(pair.input.read(upTo: 1).isEmpty && pair.output.writeOnce([1]) == -1)
            pair.input.close()
            pair.output.close()
            #expect(loop.run(in: .default) == .finished && pair.input.streamStatus == .error)
        }
    }

    @Test func `an unknown host is a resolver error of both halves`() {
        let recorders = [Recorder(), Recorder()]
        let pair = Stream.connection(toHost: "nobody.invalid", port: 80)
        pair.input.start(recorders[0])
        pair.output.start(recorders[1])
        RunLoop.current.serve { recorders.allSatisfy { !$0.events.isEmpty } }
        #expect(recorders.allSatisfy { $0.events == [.errorOccurred] })
        #expect(pair.input.streamError is ResolverError && pair.output.streamError is ResolverError)
    }

    @Test func `an unknown host is an error of a blocking write, a flush and a shutdown`() throws {
        let pair = Stream.connection(toHost: "", port: 80)
        pair.output.open()
        #expect(pair.output.writeOnce([1]) == -1 && pair.output.streamStatus == .error)
        let error = try #require(pair.output.streamError as? ResolverError)
        #expect(error.code == .unknownName)
        #expect(throws: error) { try pair.output.flush() }
        #expect(throws: error) { try pair.output.shutDown() }
    }

    @Test(arguments: [true, false])
    func `connecting fails after the timeout`(isScheduled: Bool) throws {
        let (server, recorder) = (try FullServer(), Recorder())
        let pair = Stream.connection(to: server.address)
        #expect(pair.output.setProperty(Duration.milliseconds(50), forKey: .socketConnectTimeoutKey))
        let begin = Deadline.now
        if isScheduled {
            pair.input.start(recorder)
            RunLoop.current.serve { !recorder.events.isEmpty }
            #expect(recorder.events == [.errorOccurred])
        } else {
            pair.input.open()
            #expect(pair.input.read(upTo: 1).isEmpty)
        }
        #expect(
            pair.input.streamErrno == .timedOut && Deadline.now - begin >= .milliseconds(50))
    }

    @Test(arguments: [true, false])
    func `one half may be closed while connecting, and the other continues`(closesInput: Bool) throws {
        let (server, loop) = (try FullServer(.path), RunLoop.current)
        let pair = Stream.connection(to: server.address)
        let (closed, left): (Stream, Stream) =
            closesInput ? (pair.input, pair.output) : (pair.output, pair.input)
        let (first, second) = (Recorder(), Recorder())
        closed.start(first)
        left.start(second)
        loop.poll()
        closed.close()
        #expect(closed.streamStatus == .closed && left.streamStatus == .opening)
        server.acceptOne()
        loop.serve { second.events.first == .openCompleted }
        loop.poll()
        #expect(first.events.isEmpty && closed.streamStatus == .closed)
        left.close()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test func `closing both halves while connecting ends the loop without events`() throws {
        let (server, recorder) = (try FullServer(), Recorder())
        let pair = Stream.connection(to: server.address)
        for stream in [pair.input, pair.output] { stream.start(recorder) }
        RunLoop.current.poll()
        for stream in [pair.input, pair.output] { stream.close() }
        #expect(RunLoop.current.run(in: .default) == .finished && recorder.events.isEmpty)
        #expect(pair.input.streamError == nil && pair.output.streamError == nil)
    }

    @Test(arguments: [0, 1, 2])
    func `releasing the streams while connecting releases everything`(opened: Int) throws {
        let server = try FullServer()
        weak var (known, other, connection): (AnyObject?, AnyObject?, AnyObject?)
        do {
            let pair = Stream.connection(to: server.address)
            (known, other) = (pair.input.internals, pair.output.internals)
            connection = pair.input.sharedConnection
            try #require(connection != nil)
            if opened > 0 { pair.input.open() }
            if opened > 1 { pair.output.open() }
            pair.input.schedule(in: .current, forMode: .default)
        }
        waitUntil { known == nil && other == nil && connection == nil }
        #expect(RunLoop.current.run(in: .default) == .finished)
    }
}
