import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Connecting, its failures, and closing meanwhile.
@Suite(.runLoop) struct SocketStreamOpeningTests {
    private let loop = RunLoop.current

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `one half connects, and the other then opens at once`(
        origin: SocketOrigin, beginsWithInput: Bool
    ) throws {
        let fixture = try SocketFixture(origin)
        let (first, second) = (Recorder(), Recorder())
        let halves = beginsWithInput ? fixture.streams : fixture.streams.reversed()
        fixture.schedule(beginsWithInput ? first : second, beginsWithInput ? second : first)
        loop.poll()
        try waitForStreamsThread()
        #expect(fixture.server?.hasPendingConnection != true && first.events.isEmpty)
        #expect(halves[0].streamStatus == .notOpen)
        halves[0].open()
        loop.serve { first.events.first == .openCompleted }
        loop.poll()
        #expect(second.events.isEmpty && halves[1].streamStatus == .notOpen)
        halves[1].open()
        #expect(halves[1].streamStatus == .open && second.events.isEmpty)
        loop.serve { second.events.first == .openCompleted }
        #expect(second.count(.openCompleted) == 1 && first.count(.openCompleted) == 1)
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `without a loop a connection is used by waiting or by polling`(
        origin: SocketOrigin, polls: Bool
    ) throws {
        let fixture = try SocketFixture(origin)
        for stream in fixture.streams { stream.open() }
        if polls { waitUntil { fixture.output.hasSpaceAvailable } }
        #expect(try fixture.output.write([1, 2]) == 2 && fixture.peer.receive(2) == [1, 2])
        let peer = try fixture.peer
        if polls { #expect(!fixture.input.hasBytesAvailable) }
        let sender = try JoinableThread(name: "sender") { peer.send([3]) }
        if polls { waitUntil { fixture.input.hasBytesAvailable } }
        #expect(fixture.input.read(upTo: 10) == [3])
        sender.join()
        peer.close()
        if polls { waitUntil { fixture.input.hasBytesAvailable } }
        #expect(fixture.input.read(upTo: 10).isEmpty && fixture.input.streamStatus == .atEnd)
    }

    @Test func `getStreamsToHost fills the pointers that are not nil`() throws {
        let server = try SocketServer()
        var (input, output): (InputStream?, OutputStream?)
        Stream.getStreamsToHost(
            withName: "127.0.0.1", port: Int(server.port), inputStream: &input, outputStream: &output)
        output?.open()
        #expect(try output?.write([1]) == 1 && server.accept().receive(1) == [1])
        Stream.getStreamsToHost(
            withName: "127.0.0.1", port: Int(server.port), inputStream: &input, outputStream: nil)
        input?.open()
        try server.accept().send([2])
        #expect(input?.read(upTo: 1) == [2])
    }

    @Test func `an invalid port or descriptor traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            Stream.getStreamsToHost(withName: "localhost", port: 65_536, inputStream: nil, outputStream: nil)
        }
        #expect(result.message.contains("65535"))
        let other = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Connection(descriptor: FileDescriptor(rawValue: -1), closeWhenDone: false).streams
        }
        #expect(other.message.contains("-1"))
    }

    // MARK: Failures

    @Test(arguments: AddressKind.allCases)
    func `a refusal is delivered once to each half that is opened`(kind: AddressKind) throws {
        let (reader, writer) = (Recorder(), Recorder())
        let pair = Connection(to: refusingAddress(kind)).streams
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

    @Test(arguments: ["", "nobody.invalid"])
    func `an unknown host is a resolver error of both halves, and of their calls`(host: String) throws {
        let recorder = Recorder()
        let (input, output) = Connection(toHost: host, port: 80).streams
        input.start(recorder)
        output.open()
        #expect(output.writeOnce([1]) == -1 && output.streamStatus == .error)
        let error = try #require(output.streamError as? IOError)
        #expect(throws: error) { try output.flushAndWait() }
        #expect(throws: error) { try output.shutDown() }
        loop.serve { !recorder.events.isEmpty }
        #expect(recorder.events == [.errorOccurred] && input.streamError as? IOError == error)
        #expect(error.reason == .resolver(EAI_NONAME) || !host.isEmpty)
    }

    @Test func `connecting fails after the timeout`() throws {
        try withVirtualTime { time in
            let (server, recorder) = (try FullServer(), Recorder())
            let options = Connection.Options(connectTimeout: .seconds(20))
            let pair = Connection(to: server.address, options: options).streams
            pair.input.start(recorder)
            time.advance(by: .seconds(19))
            #expect(recorder.events.isEmpty)
            time.advance(by: .seconds(2))
            #expect(recorder.events == [.errorOccurred] && pair.input.streamErrno == .timedOut)
            pair.input.close()
        }
    }

    @Test func `both halves of a new connection wake their loop once`() throws {
        let server = try SocketServer()
        let port = try #require(server.address.port)
        for _ in 0..<20 {
            let options = Connection.Options(idleTimeout: .seconds(3600))
            let (input, output) = Connection(toHost: "127.0.0.1", port: port, options: options).streams
            let (reader, writer) = (Recorder(), Recorder())
            let before = loop.statistics.wakeUpsByThread
            input.start(reader)
            output.start(writer)
            loop.serve { !reader.events.isEmpty && !writer.events.isEmpty }
            #expect(loop.statistics.wakeUpsByThread - before <= 1)
            for half in [input, output] as [Stream] { half.close() }
        }
    }

    @Test func `a client may connect again in its error callback`() throws {
        let (refusing, server, recorder) = (refusingAddress(), try SocketServer(), Recorder())
        var pair = Connection(to: refusing).streams
        defer { recorder.onEvent = { _, _ in } }  // which retains the recorder
        recorder.onEvent = { stream, event in
            guard event == .errorOccurred else { return }
            for half in [pair.input, pair.output] as [Stream] { half.close() }
            pair = Connection(to: server.address).streams
            pair.input.start(recorder)
            pair.output.open()
            #expect(pair.output.write([1]) == 1)
        }
        pair.input.start(recorder)
        loop.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.errorOccurred, .openCompleted])
        #expect(try server.accept().receive(1) == [1])
    }

    // MARK: Closing while connecting

    @Test(arguments: [true, false])
    func `one half may be closed while connecting, and the other continues`(closesInput: Bool) throws {
        let server = try FullServer(.path)
        let (input, output) = Connection(to: server.address).streams
        let (closed, left): (Stream, Stream) = closesInput ? (input, output) : (output, input)
        let (first, second) = (Recorder(), Recorder())
        for (stream, recorder) in [(closed, first), (left, second), (closed, first)] {
            stream.start(recorder)
        }
        loop.poll()
        #expect(closed.streamStatus == .opening && !input.hasBytesAvailable && !output.hasSpaceAvailable)
        expectErrno(.socketNotConnected) { try output.shutDown() }
        closed.close()
        #expect(closed.streamStatus == .closed && left.streamStatus == .opening)
        server.acceptOne()
        loop.serve { second.events.first == .openCompleted }
        loop.poll()
        #expect(first.events.isEmpty && closed.streamStatus == .closed && closed.streamError == nil)
        left.close()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [0, 1, 2])
    func `releasing the streams while connecting releases everything`(opened: Int) throws {
        let server = try FullServer()
        weak var (known, other, connection): (AnyObject?, AnyObject?, AnyObject?)
        do {
            let pair = Connection(to: server.address).streams
            (known, other) = (pair.input.internals, pair.output.internals)
            connection = pair.input.sharedConnection
            try #require(connection != nil)
            if opened > 0 { pair.input.open() }
            if opened > 1 { pair.output.open() }
            pair.input.schedule(in: .current, forMode: .default)
        }
        waitUntil { known == nil && other == nil && connection == nil }
        #expect(loop.run(in: .default) == .finished)
    }
}
