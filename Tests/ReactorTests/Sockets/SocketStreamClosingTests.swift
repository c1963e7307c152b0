import Glibc
import Reactor
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
    func `closing both halves in a callback ends events and the loop`(
        origin: SocketOrigin, event: Stream.Event
    ) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        recorder.onEvent = { [unowned recorder] stream, told in
            if told == event { fixture.closeBoth() }
            if told == event { recorder.events = [told] }
            if told == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 10) }
        }
        for stream in fixture.streams { stream.start(recorder) }
        guard provoke(event, by: try fixture.peer, origin) else { return fixture.closeBoth() }
        #expect(loop.run(in: .default) == .finished)
        #expect(recorder.events == [event])
        #expect(fixture.input.socketDescriptor == nil)
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], events)
    func `closing one half in a callback leaves the other`(origin: SocketOrigin, event: Stream.Event) throws {
        let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
        var closed: Stream?
        for recorder in [reader, writer] {
            recorder.onEvent = { [unowned recorder] stream, told in
                if told == event, closed == nil {
                    stream.close()
                    closed = stream
                    recorder.events = []
                }
                if told == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 10) }
            }
        }
        fixture.input.start(reader)
        fixture.output.start(writer)
        guard provoke(event, by: try fixture.peer, origin) else { return fixture.closeBoth() }
        loop.serve { closed != nil }
        let other: Stream = closed === fixture.input ? fixture.output : fixture.input
        // The other half may still be opening, or learn of the fault a little later.
        loop.serve { other.streamStatus == (event == .errorOccurred ? .error : .open) }
        loop.poll()
        #expect((closed === fixture.input ? reader : writer).events.isEmpty)
        if event != .errorOccurred, other === fixture.output { #expect(fixture.output.writeOnce([1]) == 1) }
        other.close()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test
    func `a stream closed in another's callback, and its reused number, deliver nothing`() throws {
        let recorders = [Recorder(), Recorder(), Recorder()]
        let (ends, fresh) = ([try SocketPeer.pair(), try SocketPeer.pair()], try SocketPeer.pair())
        let pairs = ends.map { Stream.connection(descriptor: $0.other) }
        var new: InputStream?
        for index in 0..<2 {
            recorders[index].onEvent = { _, event in
                guard event == .hasBytesAvailable, new == nil else { return }
                let number = ends[1 - index].other.rawValue
                pairs[1 - index].input.close()
                pairs[1 - index].output.open()
                pairs[1 - index].output.close()
                #expect(dup2(fresh.other.rawValue, number) == number)
                new = Stream.connection(descriptor: FileDescriptor(rawValue: number)).input
                new?.start(recorders[2])
            }
            pairs[index].input.start(recorders[index])
        }
        loop.serve { recorders.prefix(2).allSatisfy { !$0.events.isEmpty } }
        for end in ends { end.0.send([1]) }
        loop.serve { !recorders[2].events.isEmpty }
        loop.poll()
        #expect(recorders.prefix(2).map { $0.count(.hasBytesAvailable) }.sorted() == [0, 1])
        #expect(recorders[2].events == [.openCompleted])
        fresh.0.send([2])
        loop.serve { recorders[2].events.last == .hasBytesAvailable }
        #expect(new?.read(upTo: 2) == [2])
        for descriptor in ends.map(\.other) + [fresh.other] { try descriptor.close() }
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

    @Test func `closing one half does not close the connection`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        let peer = try fixture.peer
        fixture.output.close()
        peer.send([1])
        #expect(fixture.input.read(upTo: 1) == [1])
        var request = pollfd(fd: peer.number, events: Int16(POLLIN), revents: 0)
        #expect(poll(&request, 1, 0) == 0)
        fixture.input.close()
        #expect(peer.receiveToEnd() == [])
    }

    @Test func `the output of an open socket can be shut down once`() throws {
        let pair = Stream.boundPair(bufferSize: 10)
        pair.output.open()
        #expect(throws: Errno.notSocket) { try pair.output.shutDown() }
        #expect(pair.output.streamStatus == .open)
        let (fixture, writer) = (try SocketFixture(), Recorder())
        #expect(throws: Errno.socketNotConnected) { try fixture.output.shutDown() }
        try fixture.start(Recorder(), writer)
        try fixture.output.shutDown()
        #expect(fixture.output.streamStatus == .atEnd && fixture.output.writeOnce([1]) == 0)
        #expect(throws: Errno.socketNotConnected) { try fixture.output.shutDown() }
        loop.poll()
        #expect(writer.events == [.openCompleted, .hasSpaceAvailable])
        fixture.output.close()
        #expect(throws: Errno.socketNotConnected) { try fixture.output.shutDown() }
    }
}
