import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamOpeningTests {
    @Test(arguments: SocketOrigin.allCases)
    func `both halves deliver openCompleted, and bytes move in both directions`(origin: SocketOrigin)
        async throws
    {
        try await onItsOwnThread {
            let fixture = try SocketFixture(origin)
            let (reader, writer) = (Recorder(), Recorder())
            fixture.input.start(reader)
            fixture.output.start(writer)
            RunLoop.current.serve { !reader.events.isEmpty && writer.events.count == 2 }
            #expect(reader.events == [.openCompleted])
            #expect(writer.events == [.openCompleted, .hasSpaceAvailable])
            reader.readsEverything()
            #expect(try fixture.output.write([1, 2, 3]) == 3 && fixture.peer.receive(3) == [1, 2, 3])
            try fixture.peer.send([4, 5])
            RunLoop.current.serve { reader.bytes == [4, 5] }
            fixture.closeBoth()
            #expect(try fixture.peer.receiveToEnd() == [])
        }
    }

    @Test(arguments: SocketOrigin.connected)
    func `nothing happens before a half is opened`(origin: SocketOrigin) throws {
        let (fixture, recorder, loop) = (try SocketFixture(origin), Recorder(), RunLoop.current)
        for stream in fixture.streams {
            stream.delegate = recorder
            stream.schedule(in: loop, forMode: .default)
        }
        loop.poll()
        try waitForStreamsThread()
        #expect(fixture.server?.hasPendingConnection == false && recorder.events.isEmpty)
        #expect(fixture.streams.allSatisfy { $0.streamStatus == .notOpen })
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `one half opens the connection, and the other then opens at once`(
        origin: SocketOrigin, beginsWithInput: Bool
    ) throws {
        let (fixture, loop) = (try SocketFixture(origin), RunLoop.current)
        let (first, second) = (Recorder(), Recorder())
        let halves = beginsWithInput ? fixture.streams : fixture.streams.reversed()
        halves[1].delegate = second
        halves[1].schedule(in: loop, forMode: .default)
        halves[0].start(first)
        loop.serve { first.events.first == .openCompleted }
        loop.poll()
        #expect(second.events.isEmpty && halves[1].streamStatus == .notOpen)
        halves[1].open()
        #expect(halves[1].streamStatus == .open && second.events.isEmpty)
        loop.serve { second.events.first == .openCompleted }
        #expect(second.count(.openCompleted) == 1 && first.count(.openCompleted) == 1)
    }

    @Test func `an existing socket is open at once`() throws {
        let fixture = try SocketFixture(.descriptor)
        for stream in fixture.streams {
            stream.open()
            #expect(stream.streamStatus == .open)
        }
    }

    @Test func `a stream is opening until it is connected`() throws {
        let server = try FullServer()
        let pair = Stream.connection(to: server.address)
        for stream in [pair.input, pair.output] {
            stream.open()
            #expect(stream.streamStatus == .opening && stream.streamError == nil)
            stream.open()
            #expect(stream.streamStatus == .opening)
        }
        #expect(!pair.input.hasBytesAvailable && !pair.output.hasSpaceAvailable)
        #expect(throws: Errno.socketNotConnected) { try pair.output.shutDown() }
        // What is left of the connection goes with its streams.
        pair.input.close()
        pair.output.close()
        #expect(pair.input.streamStatus == .closed && pair.output.streamError == nil)
    }

    @Test(arguments: SocketOrigin.allCases)
    func `reading and writing block until the stream is open`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        for stream in fixture.streams { stream.open() }
        #expect(try fixture.output.write([1, 2]) == 2 && fixture.peer.receive(2) == [1, 2])
        let peer = try fixture.peer
        let sender = try JoinableThread(name: "sender") { peer.send([3]) }
        #expect(fixture.input.read(upTo: 10) == [3])
        sender.join()
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a connection can be made and used by polling, without a loop`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        for stream in fixture.streams { stream.open() }
        waitUntil { fixture.output.hasSpaceAvailable }
        #expect(fixture.output.streamStatus == .open && !fixture.input.hasBytesAvailable)
        try fixture.peer.send([7])
        waitUntil { fixture.input.hasBytesAvailable }
        #expect(fixture.input.read(upTo: 10) == [7] && !fixture.input.hasBytesAvailable)
        try fixture.peer.close()
        waitUntil { fixture.input.hasBytesAvailable }
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
            Stream.getStreamsToHost(
                withName: "localhost", port: 65_536, inputStream: nil, outputStream: nil)
        }
        #expect(result.message.contains("needs a port in 0...65535"))
        let other = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Stream.connection(descriptor: FileDescriptor(rawValue: -1))
        }
        #expect(other.message.contains("needs an open descriptor, not -1"))
    }

    @Test func `a half in several modes delivers openCompleted once, in the mode that runs`() throws {
        let (fixture, recorder, loop) = (try SocketFixture(), Recorder(), RunLoop.current)
        fixture.output.schedule(in: loop, forMode: .custom)
        fixture.output.start(recorder)
        loop.serve(in: .custom) { recorder.events.count == 2 }
        loop.poll(.default)
        #expect(recorder.events == [.openCompleted, .hasSpaceAvailable])
        fixture.output.write([1])
        loop.serve { recorder.events.count == 3 }
    }

    @Test func `a half may change loops while opening, and the halves may be on different loops`()
        async throws
    {
        try await onItsOwnThread {
            let threads = [try RunLoopThread(name: "one"), try RunLoopThread(name: "two")]
            let fixture = try SocketFixture()
            let (reader, writer) = (Counter(), Counter())
            fixture.input.delegate = reader
            fixture.output.delegate = writer
            for stream in fixture.streams { stream.schedule(in: threads[0].runLoop, forMode: .default) }
            for stream in fixture.streams { stream.open() }
            fixture.output.remove(from: threads[0].runLoop, forMode: .default)
            fixture.output.schedule(in: threads[1].runLoop, forMode: .default)
            try fixture.peer.send([1])
            waitUntil { reader.events.value.count == 2 && writer.events.value.count >= 2 }
            fixture.closeBoth()
            for thread in threads { thread.stop() }
            #expect(reader.events.value == [1, 2] && writer.events.value.first == 1)
            #expect(reader.threads.value.count == 1)
        }
    }
}
