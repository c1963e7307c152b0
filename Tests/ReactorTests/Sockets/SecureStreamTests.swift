import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Streams whose connection a transport protects: a masking one, which shows what a connection does for any.
///
/// SocketStreamTrafficTests has their traffic, ReactorTLSTests the handshakes and their failures.
@Suite(.runLoop) struct SecureStreamTests {
    private let loop = RunLoop.current

    /// A pair that is open, and not protected.
    private func openPair() throws -> SocketFixture {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        return fixture
    }

    // MARK: The handshake

    @Test func `a half that is opened after the other was closed uses the same connection`() throws {
        for _ in 0..<50 {
            let server = try SocketServer()
            let (input, output) = Connection(toHost: "127.0.0.1", port: server.port).streams
            #expect(input.protect(by: MaskingSecurity()))
            input.open()
            let peer = try server.accept()
            // The streams thread may know by now that the socket is connected, or not.
            input.close()
            output.open()
            peer.answerHello()
            #expect(output.write([4]) == 1)
            #expect(peer.receiveRecord()?.bytes == [4])
            output.close()
        }
    }

    private final class Counter: StreamDelegate, Sendable {
        let count = Shared(0)

        func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
            if eventCode == .hasBytesAvailable { count.update { $0 += 1 } }
        }
    }

    @Test func `a socket with the number of one whose handshake was given up gets its events`() async {
        // Alone in a process, so that nothing else takes the number.
        await #expect(processExitsWith: .success) {
            let (client, (peer, later)) = (try SocketPeer.pair(), try SocketPeer.pair())
            let number = client.1.rawValue
            let connection = Connection(descriptor: client.1)
            #expect(connection.streams.input.protect(by: MaskingSecurity()))
            for half in [connection.streams.input, connection.streams.output] as [Stream] { half.open() }
            #expect(client.0.receive(1).count == 1, "the handshake has begun")
            let (loop, held, ended) = (try streamsLoop(), Answer<Void>(), Answer<Void>())
            loop.perform {
                held.give(())
                ended.wait()
            }
            try onAThread { held.wait() }
            connection.close()
            #expect(fcntl(later.rawValue, F_DUPFD_CLOEXEC, number) == number)
            let (input, counter) = (InputStream(descriptor: FileDescriptor(rawValue: number)), Counter())
            input.delegate = counter
            input.setDispatchQueue(DispatchQueue(label: "events"))
            input.open()
            ended.give(())
            peer.send([1])
            try onAThread { counter.count.wait { $0 > 0 ? () : nil } }
            input.close()
        }
    }

    // MARK: Receiving

    @Test(arguments: [true, false])
    func `a delegate that does not read receives one event, even if the stream is asked for bytes`(
        explains: Bool
    ) throws {
        let fixture = try SocketFixture.protected()
        let (input, peer, recorder) = (fixture.input!, try fixture.peer, Recorder())
        fixture.schedule(recorder, Recorder())
        loop.poll()
        peer.send(Masking.record(.data, [1]))
        waitUntil { explains ? input.explain().contains("bytes to read") : input.hasBytesAvailable }
        loop.serve { recorder.count(.hasBytesAvailable) == 1 }
        peer.send(Masking.record(.data, [2]))
        #expect(loop.passesInAWhile() < 10)
        #expect(recorder.count(.hasBytesAvailable) == 1)
        var bytes: [UInt8] = []
        while bytes.count < 2 { bytes += input.read(upTo: 10) }
        #expect(bytes == [1, 2])
        peer.send(Masking.record(.data, [3]))
        loop.serve { recorder.count(.hasBytesAvailable) == 2 }
    }

    @Test(arguments: [true, false])
    func `a thread without a loop reads all bytes while a loop asks for them`(isScheduled: Bool) throws {
        let fixture = try SocketFixture.protected()
        if isScheduled { fixture.input.schedule(in: .current, forMode: .default) }
        let (input, peer) = (Carrier(fixture.input!), try fixture.peer)
        let reader = try Background { () -> [UInt8] in
            var bytes: [UInt8] = []
            while case let more = input.value.read(upTo: 100), !more.isEmpty { bytes += more }
            return bytes
        }
        let sender = try JoinableThread {
            for start in stride(from: 0, to: 20_000, by: 1000) {
                peer.send(Masking.records(of: Array(pattern(20_000)[start..<start + 1000]), size: 90))
                sched_yield()
            }
            peer.send(Masking.record(.end))
        }
        while fixture.input.streamStatus != .atEnd {
            if isScheduled { loop.poll(passes: 1) } else { _ = fixture.input.hasBytesAvailable }
        }
        #expect(reader.value == pattern(20_000))
        sender.join()
    }

    // MARK: Open connections that are protected from some byte on

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
            fixture = try openPair()
            fixture.connection.idleTimeout = .milliseconds(20)
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
        let fixture = try openPair()
        let peer = try fixture.peer
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
        #expect(synchronously { input.read(upTo: 100).isEmpty })
        #expect(fixture.output.writeOnce([1]) == -1)
        for stream in fixture.streams {
            #expect(stream.streamError as? Masking.Failure == .unprotectedBytes)
        }
    }

    @Test func `a read and a shutdown during the handshake wait for it`() throws {
        let fixture = try openPair()
        let peer = try fixture.peer
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
        let fixture = try openPair()
        let peer = try fixture.peer
        let output = Carrier(fixture.output!)
        let security = MaskingSecurity(decide: { try? output.value.shutDown() })
        #expect(fixture.input.protect(by: security))
        peer.answerHello()
        #expect(peer.receiveRecordsToEnd() == [])
        fixture.closeBoth()
    }
}
