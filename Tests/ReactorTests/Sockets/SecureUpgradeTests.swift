import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Open connections that a transport protects from some byte on.
@Suite(.runLoop) struct SecureUpgradeTests {
    private let loop = RunLoop.current

    /// A pair that is open, and not protected.
    private func openPair(_ origin: SocketOrigin = .ipv4) throws -> (fixture: SocketFixture, peer: SocketPeer)
    {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        return (fixture, try fixture.peer)
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `protection begins with the next byte`(origin: SocketOrigin, isScheduled: Bool) throws {
        let (fixture, peer) = try openPair(origin)
        let recorder = Recorder()
        if isScheduled {
            for stream in fixture.streams { stream.schedule(in: .current, forMode: .default) }
        }
        #expect(fixture.output.write([1]) == 1)
        #expect(peer.receive(1) == [1])
        peer.send([2])
        #expect(fixture.input.read(upTo: 1) == [2])
        #expect(fixture.output.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.delegate = recorder }
        peer.answerHello()
        peer.send(Masking.record(.data, [3]))
        if isScheduled {
            loop.serve {
                recorder.count(.hasBytesAvailable) == 1 && recorder.count(.hasSpaceAvailable) > 0
            }
        }
        #expect(fixture.input.read(upTo: 10) == [3])
        #expect(fixture.output.write([4]) == 1)
        #expect(peer.receiveRecord()?.bytes == [4])
        #expect(fixture.streams.allSatisfy { $0.streamStatus == .open })
    }

    @Test func `bytes in the write buffer are sent before the handshake`() throws {
        let fixture = try SocketFixture(isNarrow: true)
        fixture.output.writeBufferSize = 300_000
        try fixture.openBoth()
        #expect(fixture.output.writeOnce(pattern(300_000)) == 300_000)
        #expect(fixture.output.protect(by: MaskingSecurity()))
        let peer = try fixture.peer
        #expect(peer.receive(300_000) == pattern(300_000))
        peer.answerHello()
        #expect(fixture.output.write([5]) == 1)
        #expect(peer.receiveRecord()?.bytes == [5])
    }

    @Test(arguments: [0, 10_000])
    func `a write that waits meanwhile sends no plain byte later`(bufferSize: Int) throws {
        let fixture = try SocketFixture(isNarrow: true)
        fixture.output.writeBufferSize = bufferSize
        try fixture.openBoth()
        try fixture.narrow()
        let (expected, written) = (pattern(500_000), Shared(0))
        let (output, writing) = (Carrier(fixture.output!), Answer<KernelThread>())
        let writer = try JoinableThread {
            writing.give(.current)
            while written.value < expected.count {
                let count = output.value.writeOnce(expected[written.value...].prefix(10_000))
                guard count > 0 else { return }
                written.update { $0 += count }
            }
            output.value.close()
        }
        // The peer reads nothing yet: the thread sleeps only where it waits for room.
        let thread = writing.wait()
        waitUntil { !output.value.hasSpaceAvailable && thread.isAsleep }
        let plainCount = written.value
        #expect(plainCount < expected.count)
        #expect(fixture.input.protect(by: MaskingSecurity()))
        fixture.input.close()
        let peer = try fixture.peer
        #expect(peer.receive(plainCount) == Array(expected[..<plainCount]))
        peer.answerHello()
        #expect(peer.receiveRecordsToEnd() == Array(expected[plainCount...]))
        writer.join()
    }

    @Test func `a failure wakes the threads that wait for the handshake of an open connection`() throws {
        var fixture: SocketFixture
        repeat {
            fixture = try openPair().fixture
            fixture.input.idleTimeout = .milliseconds(20)
            // A machine that is busy may take longer than that.
        } while !fixture.input.protect(by: MaskingSecurity())
        let (input, output) = (Carrier(fixture.input!), Carrier(fixture.output!))
        let threads = [
            try JoinableThread { #expect(input.value.read(upTo: 1).isEmpty) },
            try JoinableThread { #expect(output.value.writeOnce([1]) == -1) },
        ]
        for thread in threads { thread.join() }
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
        // The handshake has ended too: an answer is not read.
        try fixture.peer.answerHello()
        fixture.closeBoth()
        #expect(try fixture.peer.receiveRecord() == nil)
    }

    @Test func `a task that has read ahead of a protection is refused one`() async throws {
        let (fixture, peer) = try openPair()
        let input = fixture.input!
        peer.send(Array("220 ready\n250 injected\n".utf8))
        for try await line in input.lines {
            #expect(line == "220 ready")
            // The next line may have been read already.
            #expect(!input.protect(by: MaskingSecurity()))
            break
        }
        // The line was put back, or is in the socket.
        #expect(input.protect(by: MaskingSecurity()))
        #expect(input.read(upTo: 100).isEmpty)
        #expect(fixture.output.writeOnce([1]) == -1)
        for stream in fixture.streams {
            #expect(stream.streamError as? Masking.Failure == .unprotectedBytes)
        }
    }

    @Test func `a read and a shutdown during the handshake wait for it`() throws {
        let (fixture, peer) = try openPair()
        #expect(fixture.input.protect(by: MaskingSecurity()))
        try fixture.output.shutDown()
        let input = Carrier(fixture.input!)
        let reader = try Background { input.value.read(upTo: 1) }
        peer.answerHello()
        peer.send(Masking.record(.data, [1]))
        #expect(reader.value == [1])
        #expect(peer.receiveRecordsToEnd() == [])
    }

    @Test func `a shutdown waits for no step of a handshake, and may be made in one`() throws {
        let (fixture, peer) = try openPair()
        let output = Carrier(fixture.output!)
        let security = MaskingSecurity(decide: { try? output.value.shutDown() })
        #expect(fixture.input.protect(by: security))
        peer.answerHello()
        #expect(peer.receiveRecordsToEnd() == [])
    }
}
