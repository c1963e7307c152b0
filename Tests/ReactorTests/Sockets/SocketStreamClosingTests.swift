import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamClosingTests {
    private let loop = RunLoop.current

    private static let events: [Stream.Event] = [
        .openCompleted, .hasBytesAvailable, .hasSpaceAvailable, .errorOccurred, .endEncountered,
    ]

    /// Makes `peer` cause `event`. False if it cannot: a peer that ends a Unix-domain connection without an unread byte
    /// is no fault.
    private func provoke(_ event: Stream.Event, by peer: SocketPeer, _ origin: SocketOrigin) -> Bool {
        switch event {
        case .hasBytesAvailable: peer.send([1])
        case .endEncountered: peer.shutDown()
        case .errorOccurred:
            guard origin == .ipv4 else { return false }
            peer.send([1])
            peer.reset()
        default: break
        }
        return true
    }

    @Test(arguments: [SocketOrigin.ipv4, .path, .descriptor], events)
    func `closing one half or both in a callback ends their events, and then the loop`(
        origin: SocketOrigin, event: Stream.Event
    ) throws {
        for closesBoth in [true, false] {
            let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
            var closed: Stream?
            for recorder in [reader, writer] {
                recorder.onEvent = { stream, told in
                    if told == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 10) }
                    guard told == event, closed == nil else { return }
                    if closesBoth { fixture.closeBoth() } else { stream.close() }
                    closed = stream
                    (reader.events, writer.events) = ([], [])
                }
            }
            // They retain each other.
            defer { for recorder in [reader, writer] { recorder.onEvent = { _, _ in } } }
            fixture.startBoth(reader, writer)
            guard provoke(event, by: try fixture.peer, origin) else { return fixture.closeBoth() }
            loop.serve { closed != nil }
            let other: Stream = closed === fixture.input ? fixture.output : fixture.input
            if !closesBoth {
                // The other half may still be opening, or learn of the fault a little later.
                loop.serve { other.streamStatus == (event == .errorOccurred ? .error : .open) }
                loop.poll()
                if event != .errorOccurred, other === fixture.output {
                    #expect(fixture.output.writeOnce([1]) == 1)
                }
                other.close()
            }
            #expect(loop.run(in: .default) == .finished)
            #expect((closed === fixture.input ? reader : writer).events.isEmpty)
            #expect(!closesBoth || reader.events + writer.events == [])
            #expect(fixture.input.socketDescriptor == nil)
        }
    }

    @Test(arguments: [true, false], [true, false])
    func `closing a stream does not affect a duplicate of its socket`(isInput: Bool, isUnix: Bool) throws {
        let server = try SocketServer(isUnix ? .path : .ipv4)
        let client = try SocketPeer(connectedTo: server.address)
        let (peer, duplicate) = (try server.accept(), try client.descriptor.duplicate())
        peer.send([1, 2])
        if isInput {
            let input = InputStream(descriptor: duplicate, closeWhenDone: true)
            input.open()
            #expect(input.read(upTo: 1) == [1])
            input.close()
            client.send([3])
        } else {
            let output = OutputStream(descriptor: duplicate)
            output.open()
            #expect(client.receive(1) == [1])
            #expect(output.write([3], maxLength: 1) == 1)
            output.close()
            try duplicate.close()
        }
        #expect(client.receiveNow(upTo: 1) == [2])
        #expect(client.send([4]) && peer.receive(2) == [3, 4])
    }

    @Test func `the output of an open socket can be shut down once`() throws {
        let pair = Stream.boundPair(bufferSize: 10)
        pair.output.open()
        expectErrno(.notSocket) { try pair.output.shutDown() }
        #expect(pair.output.streamStatus == .open)
        let (fixture, writer) = (try SocketFixture(), Recorder())
        expectErrno(.socketNotConnected) { try fixture.output.shutDown() }
        try fixture.start(Recorder(), writer)
        try fixture.output.shutDown()
        #expect(fixture.output.streamStatus == .atEnd && fixture.output.writeOnce([1]) == 0)
        expectErrno(.socketNotConnected) { try fixture.output.shutDown() }
        loop.poll()
        #expect(writer.events == [.openCompleted, .hasSpaceAvailable])
        fixture.output.close()
        expectErrno(.socketNotConnected) { try fixture.output.shutDown() }
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `an output that is shut down while it has no room does not keep the loop awake`(origin: SocketOrigin)
        throws
    {
        let (fixture, writer) = (try SocketFixture(origin, isNarrow: true), Recorder())
        try fixture.start(Recorder(), writer)
        let peer = try fixture.peer
        try fixture.narrow()
        while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(10_000)) }
        try fixture.output.shutDown()
        // The kernel reports such an output as writable, and a Unix-domain one when there is room.
        while !peer.receiveNow(upTo: 100_000).isEmpty { loop.poll() }
        #expect(loop.passesInAWhile() < 10 && writer.count(.endEncountered) == 0)
    }
}
