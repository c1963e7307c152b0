import Glibc
import SystemPackage
import Testing

@testable import Reactor

/// Streams that are closed with bytes that their peer has no room for yet.
@Suite struct SocketStreamLingerTests {
    enum Ending: CaseIterable {
        case closing, release, both
    }

    @Test(arguments: SocketOrigin.allCases, Ending.allCases)
    func `what was kept arrives after the closing, and then the end`(origin: SocketOrigin, ending: Ending)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, recorder) = (try SocketFixture(origin, isNarrow: true), Recorder())
            for stream in fixture.streams { stream.start(recorder) }
            let peer = try fixture.peer
            RunLoop.current.serve { recorder.events.count == 3 }
            let sent = fill(fixture.output)
            let number = (fixture.input.property(forKey: .socketDescriptorKey) as? FileDescriptor)?.rawValue
            weak let channel = (fixture.input.engine.backend as? SocketInput)?.channel
            if ending != .release { fixture.closeBoth() }
            if ending != .closing { fixture.releaseStreams() }
            #expect(RunLoop.current.run(in: .default) == .finished && number != nil)
            #expect(peer.receiveToEnd(by: 1000)?.count == sent)
            waitUntil { channel?.holder.number ?? -1 == -1 }
        }
    }

    @Test(arguments: [true, false])
    func `what was kept for a descriptor that was lent arrives, whatever becomes of its number`(isPair: Bool)
        async throws
    {
        try await onItsOwnThread {
            let ((peer, other), (stranger, fresh)) = (try SocketPeer.pair(), try SocketPeer.pair())
            SocketPeer.narrow(other.rawValue)
            let output =
                isPair ? Stream.socketPair(descriptor: other).output : OutputStream(descriptor: other)
            output.schedule(in: .current, forMode: .default)
            output.open()
            let sent = fill(output)
            output.close()
            #expect(output.property(forKey: .socketDescriptorKey) == nil)
            // The number is its owner's again, and somebody else's at once.
            #expect(dup2(fresh.rawValue, other.rawValue) == other.rawValue)
            #expect(peer.receiveToEnd(by: 1000)?.count == sent)
            try other.close()
            try fresh.close()
            #expect(stranger.receiveToEnd() == [])
        }
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `a peer that goes on reading gets it all, however long that takes`(origin: SocketOrigin) async throws
    {
        try await onItsOwnThread {
            let fixture = try SocketFixture(origin, isNarrow: true)
            fixture.output.schedule(in: .current, forMode: .default)
            try fixture.openBoth()
            try fixture.narrow()
            let (sent, peer) = (fill(fixture.output), try fixture.peer)
            #expect(fixture.output.setProperty(Duration.seconds(2), forKey: .socketWriteTimeoutKey))
            fixture.closeBoth()
            let begin = Deadline.now
            var received = 0
            while let piece = peer.receive(upTo: sent / 24), !piece.isEmpty {
                received += piece.count
                if Deadline.now - begin < .milliseconds(2500) { usleep(110_000) }
            }
            #expect(received == sent)
        }
    }

    @Test func `a peer that does not read is not waited for without end`() async {
        await #expect(processExitsWith: .success) { try onAThread { try leaveUnread() } }
    }
}

private func leaveUnread() throws {
    let before = openSockets()
    do {
        let fixture = try SocketFixture(.descriptor, isNarrow: true)
        fixture.output.schedule(in: .current, forMode: .default)
        try fixture.openBoth()
        _ = fill(fixture.output)
        #expect(fixture.input.setProperty(Duration.milliseconds(30), forKey: .socketWriteTimeoutKey))
        fixture.closeBoth()
        let peer = try fixture.peer
        // Its own end is all that is left.
        waitUntil { openSockets() == before + 1 }
        try #require(peer.receiveToEnd() != nil)
    }
    try #require(openSockets() == before)
}

/// Writes until the stream keeps as much as it may; how much that is.
private func fill(_ output: OutputStream) -> Int {
    let backend = output.engine.backend
    let socket = backend as? SocketOutput ?? ((backend as! FileOutput).inner as! SocketOutput)
    var sent = 0
    while socket.keptCount < 65_536, output.streamError == nil { sent += output.writeOnce(pattern(5000)) }
    #expect(output.streamError == nil)
    return sent
}

/// Runs `body` on a thread that has a loop of its own, and waits for it.
func onAThread(_ body: @escaping @Sendable () throws -> Void) throws {
    let result = Shared<Result<Void, any Error>?>(nil)
    try JoinableThread(name: "child") { result.value = Result { try body() } }.join()
    try result.value?.get()
}
