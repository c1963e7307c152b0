import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamEndTests {
    @Test(arguments: SocketOrigin.allCases, [0, 1, 100_000])
    func `all bytes arrive before the end, which is delivered once`(
        origin: SocketOrigin, count: Int
    ) async throws {
        try await onItsOwnThread {
            let (fixture, recorder, loop) = (try SocketFixture(origin), Recorder(), RunLoop.current)
            var reads: [Int] = []
            recorder.onEvent = { [unowned recorder] stream, event in
                guard event == .hasBytesAvailable else { return }
                let bytes = (stream as! InputStream).read(upTo: 3000)
                reads.append(bytes.count)
                recorder.bytes += bytes
            }
            fixture.input.start(recorder)
            let peer = try fixture.peer
            let sender = try JoinableThread(name: "sender") {
                peer.send(pattern(count))
                peer.close()
            }
            loop.serve { recorder.events.last == .endEncountered }
            sender.join()
            loop.poll()
            #expect(recorder.bytes == pattern(count))
            #expect(reads.last == 0 && reads.count { $0 == 0 } == 1)
            #expect(recorder.count(.endEncountered) == 1 && recorder.count(.hasBytesAvailable) == reads.count)
            #expect(fixture.input.streamStatus == .atEnd && fixture.input.read(upTo: 1).isEmpty)
            #expect(loop.passesInAWhile() < 10)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the end is not delivered before a read finds it`(origin: SocketOrigin) throws {
        let (fixture, recorder, loop) = (try SocketFixture(origin), Recorder(), RunLoop.current)
        fixture.input.start(recorder)
        try fixture.peer.close()
        loop.serve { recorder.events.last == .hasBytesAvailable }
        loop.poll()
        #expect(recorder.events == [.openCompleted, .hasBytesAvailable] && loop.passesInAWhile() < 10)
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a peer that has shut its output down can still be written to`(origin: SocketOrigin) async throws {
        try await onItsOwnThread {
            let fixture = try SocketFixture(origin)
            let (reader, writer, loop) = (Recorder(), Recorder(), RunLoop.current)
            reader.readsEverything()
            fixture.input.start(reader)
            fixture.output.start(writer)
            let peer = try fixture.peer
            peer.send([1, 2])
            peer.shutDown()
            loop.serve { reader.events.last == .endEncountered && writer.events.count == 2 }
            #expect(reader.bytes == [1, 2] && fixture.output.streamStatus == .open)
            let received = Shared<[UInt8]>([])
            let receiver = try JoinableThread(name: "receiver") { received.value = peer.receive(200_000) }
            var left = pattern(200_000)[...]
            writer.onEvent = { _, event in
                guard event == .hasSpaceAvailable, !left.isEmpty else { return }
                left = left.dropFirst(fixture.output.writeOnce(left))
            }
            left = left.dropFirst(fixture.output.writeOnce(left))
            loop.serve { left.isEmpty }
            fixture.output.close()
            receiver.join()
            #expect(received.value == pattern(200_000) && writer.count(.errorOccurred) == 0)
        }
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `shutting down ends the output after its bytes, and not the input`(
        origin: SocketOrigin, isFull: Bool
    ) throws {
        let (fixture, reader, writer) = (
            try SocketFixture(origin, isNarrow: true), Recorder(), Recorder()
        )
        fixture.output.writeBufferSize = 65_536
        fixture.input.start(reader)
        fixture.output.start(writer)
        RunLoop.current.serve { writer.events.count == 2 }
        try fixture.narrow()
        reader.readsEverything()
        var written = 0
        repeat { written += fixture.output.writeOnce(pattern(1000)) } while isFull && written < 60_000
        try fixture.output.shutDown()
        #expect(fixture.output.streamStatus == .atEnd && fixture.output.writeOnce([1]) == 0)
        #expect(throws: Errno.socketNotConnected) { try fixture.output.shutDown() }
        let (peer, received) = (try fixture.peer, Shared<[UInt8]?>(nil))
        let receiver = try JoinableThread(name: "receiver") {
            received.value = peer.receiveToEnd()
            peer.send([7, 8])
            peer.close()
        }
        RunLoop.current.serve { reader.events.last == .endEncountered }
        receiver.join()
        #expect(received.value?.count == written && reader.bytes == [7, 8])
        #expect(writer.count(.endEncountered) == 0 && writer.count(.errorOccurred) == 0)
        fixture.closeBoth()
        #expect(RunLoop.current.run(in: .default) == .finished)
    }

    @Test func `shutDown throws unless the stream is an open socket's`() throws {
        let pair = Stream.boundPair(bufferSize: 10)
        pair.output.open()
        #expect(throws: Errno.notSocket) { try pair.output.shutDown() }
        #expect(pair.output.streamStatus == .open)
        let fixture = try SocketFixture()
        #expect(throws: Errno.socketNotConnected) { try fixture.output.shutDown() }
        try fixture.openBoth()
        fixture.output.close()
        #expect(throws: Errno.socketNotConnected) { try fixture.output.shutDown() }
    }

    @Test func `closing one half does not close the connection`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        fixture.output.close()
        try fixture.peer.send([1])
        #expect(fixture.input.read(upTo: 1) == [1])
        var request = pollfd(fd: try fixture.peer.number, events: Int16(POLLIN), revents: 0)
        #expect(poll(&request, 1, 0) == 0)
        fixture.input.close()
        #expect(try fixture.peer.receiveToEnd() == [])
    }

    @Test func `an urgent byte does not disturb the other bytes`() throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        recorder.readsEverything()
        fixture.input.start(recorder)
        let peer = try fixture.peer
        peer.send(Array("before".utf8))
        peer.send(Array("!".utf8), flags: CInt(MSG_OOB))
        peer.send(Array("after".utf8))
        peer.shutDown()
        RunLoop.current.serve { recorder.events.last == .endEncountered }
        #expect(recorder.bytes == Array("beforeafter".utf8) && recorder.count(.errorOccurred) == 0)
    }

    @Test func `an urgent byte alone delivers no event`() throws {
        let (fixture, recorder, loop) = (try SocketFixture(), Recorder(), RunLoop.current)
        fixture.input.start(recorder)
        loop.serve { recorder.events == [.openCompleted] }
        try fixture.peer.send([1], flags: CInt(MSG_OOB))
        #expect(loop.passesInAWhile() < 10 && recorder.events == [.openCompleted])
        try fixture.peer.send([2])
        recorder.readsEverything()
        loop.serve { recorder.bytes == [2] }
    }
}
