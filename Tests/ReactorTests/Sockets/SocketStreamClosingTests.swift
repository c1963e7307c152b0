import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamClosingTests {
    private static let events: [Stream.Event] = [
        .openCompleted, .hasBytesAvailable, .hasSpaceAvailable, .errorOccurred, .endEncountered,
    ]

    /// Makes `peer` cause `event`.
    private func provoke(_ event: Stream.Event, by peer: SocketPeer) {
        switch event {
        case .hasBytesAvailable: peer.send([1])
        case .endEncountered: peer.shutDown()
        case .errorOccurred:
            peer.send([1])
            peer.reset()
        default: break
        }
    }

    @Test(arguments: [SocketOrigin.ipv4, .path, .descriptor], events)
    func `closing both halves in any callback ends events and the loop`(
        origin: SocketOrigin, event: Stream.Event
    ) async throws {
        // A peer that ends a Unix-domain connection without an unread byte is no fault.
        if event == .errorOccurred, origin != .ipv4 { return }
        try await onItsOwnThread {
            let (fixture, recorder) = (try SocketFixture(origin), Recorder())
            recorder.onEvent = { [unowned recorder] stream, told in
                if told == event { fixture.closeBoth() }
                if told == event { recorder.events = [told] }
                if told == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 10) }
            }
            for stream in fixture.streams { stream.start(recorder) }
            provoke(event, by: try fixture.peer)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.events == [event])
            #expect(fixture.input.property(forKey: .socketDescriptorKey) == nil)
        }
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], events)
    func `closing one half in any callback does not affect the other`(
        origin: SocketOrigin, event: Stream.Event
    ) async throws {
        if event == .errorOccurred, origin != .ipv4 { return }
        try await onItsOwnThread {
            let (fixture, loop) = (try SocketFixture(origin), RunLoop.current)
            let (reader, writer) = (Recorder(), Recorder())
            var closed: Stream?
            for (stream, recorder) in [(fixture.input!, reader), (fixture.output!, writer)]
                as [(Stream, Recorder)]
            {
                recorder.onEvent = { [unowned recorder] stream, told in
                    if told == event, closed == nil {
                        stream.close()
                        closed = stream
                        recorder.events = []
                    }
                    if told == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 10) }
                }
                stream.start(recorder)
            }
            provoke(event, by: try fixture.peer)
            loop.serve { closed != nil }
            let other: Stream = closed === fixture.input ? fixture.output : fixture.input
            // The other half may still be opening, or learn of the fault a little later.
            loop.serve { other.streamStatus == (event == .errorOccurred ? .error : .open) }
            loop.poll()
            #expect((closed === fixture.input ? reader : writer).events.isEmpty)
            if event != .errorOccurred, other === fixture.output {
                #expect(fixture.output.writeOnce([1]) == 1)
            }
            other.close()
            #expect(loop.run(in: .default) == .finished)
        }
    }

    @Test
    func `a stream closed in another's callback delivers nothing, nor does a new socket with its number`()
        async throws
    {
        try await onItsOwnThread {
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
            RunLoop.current.serve { recorders.prefix(2).allSatisfy { !$0.events.isEmpty } }
            for end in ends { end.0.send([1]) }
            RunLoop.current.serve { !recorders[2].events.isEmpty }
            RunLoop.current.poll()
            #expect(recorders.prefix(2).map { $0.count(.hasBytesAvailable) }.sorted() == [0, 1])
            #expect(recorders[2].events == [.openCompleted])
            fresh.0.send([2])
            RunLoop.current.serve { recorders[2].events.last == .hasBytesAvailable }
            #expect(new?.read(upTo: 2) == [2])
            for descriptor in ends.map(\.other) + [fresh.other] { try descriptor.close() }
        }
    }

    @Test func `closing an input stream does not affect a duplicate of its socket`() throws {
        let server = try SocketServer()
        let client = try SocketPeer(connectedTo: server.address)
        let (unixPeer, unixClient) = try SocketPeer.pair()
        for (client, peer) in [(client, try server.accept()), (SocketPeer(unixClient.rawValue), unixPeer)] {
            let input = InputStream(descriptor: try client.descriptor.duplicate(), closeWhenDone: true)
            input.open()
            client.send([1])
            peer.send([2, 3])
            #expect(input.read(upTo: 1) == [2])
            input.close()
            #expect(client.receiveNow(upTo: 1) == [3])
            #expect(client.send([4]) && peer.receive(2) == [1, 4])
        }
    }

    @Test func `closing an output stream that does not own its socket does not affect a duplicate`() throws {
        let server = try SocketServer()
        let client = try SocketPeer(connectedTo: server.address)
        let (unixPeer, unixClient) = try SocketPeer.pair()
        for (client, peer) in [(client, try server.accept()), (SocketPeer(unixClient.rawValue), unixPeer)] {
            let duplicate = try client.descriptor.duplicate()
            let output = OutputStream(descriptor: duplicate)
            output.open()
            peer.send([1, 2])
            #expect(client.receive(1) == [1])
            #expect(output.write([3], maxLength: 1) == 1)
            output.close()
            try duplicate.close()
            #expect(client.receiveNow(upTo: 1) == [2])
            #expect(client.send([4]) && peer.receive(2) == [3, 4])
        }
    }
}
