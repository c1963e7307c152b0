import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamFaultTests {
    private let loop = RunLoop.current

    private func isGone(_ error: (any Error)?) -> Bool {
        [Errno.connectionReset, .brokenPipe].contains((error as? IOError)?.errno)
    }

    @Test(arguments: [SocketOrigin.host, .ipv4, .ipv6])
    func `a reset is delivered once to both halves, after the bytes before it`(origin: SocketOrigin) throws {
        let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
        try fixture.start(reader, writer)
        reader.onEvent = { [unowned reader] stream, event in
            guard event == .hasBytesAvailable else { return }
            #expect(stream.streamStatus == .open && fixture.output.streamStatus == .open)
            reader.bytes += (stream as! InputStream).read(upTo: 4)
        }
        try fixture.peer.send(pattern(10))
        try fixture.peer.reset()
        loop.serve { reader.events.last == .errorOccurred && writer.events.last == .errorOccurred }
        loop.poll()
        #expect(reader.bytes == pattern(10) && loop.passesInAWhile() < 10)
        for recorder in [reader, writer] { #expect(recorder.count(.errorOccurred) == 1) }
        #expect(reader.count(.endEncountered) == 0)
        for stream in fixture.streams { #expect(stream.streamErrno == .connectionReset) }
        fixture.closeBoth()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [SocketOrigin.ipv4, .path, .descriptor], [true, false])
    func `a peer that closes with bytes pending is an error of both halves`(
        origin: SocketOrigin, opensInput: Bool
    ) throws {
        let fixture = try SocketFixture(origin, isNarrow: true)
        let (reader, writer) = (Recorder(), Recorder())
        reader.readsEverything()
        if opensInput { fixture.input.start(reader) }
        fixture.output.start(writer)
        loop.serve { writer.events.count == 2 }
        try fixture.narrow()
        while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(5000)) }
        try fixture.peer.reset()
        loop.serve { writer.events.last == .errorOccurred && (!opensInput || reader.events.count > 1) }
        loop.poll()
        #expect(isGone(fixture.output.streamError) && writer.count(.errorOccurred) == 1)
        #expect(reader.count(.errorOccurred) == (opensInput ? 1 : 0))
        #expect(opensInput ? isGone(fixture.input.streamError) : fixture.input.streamError == nil)
        #expect(fixture.output.writeOnce([1]) == -1)
        fixture.closeBoth()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [SocketOrigin.path, .abstract, .descriptor], [true, false])
    func `bytes that arrived before a write failed are read before the error`(
        origin: SocketOrigin, isScheduled: Bool
    ) throws {
        let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
        try fixture.openBoth()
        try fixture.peer.send(pattern(10))
        try fixture.peer.close()
        // A process that another test is starting has the peer's descriptor until it calls exec.
        waitUntil { fixture.output.writeOnce([1]) == -1 }
        #expect(fixture.output.streamErrno == .brokenPipe)
        #expect(fixture.input.streamStatus == .open)
        guard isScheduled else {
            #expect(fixture.input.hasBytesAvailable && fixture.input.read(upTo: 6) == pattern(6))
            #expect(fixture.input.read(upTo: 6) == [6, 7, 8, 9] && fixture.input.streamStatus == .open)
            #expect(fixture.input.read(upTo: 6).isEmpty && fixture.input.streamStatus == .error)
            return
        }
        reader.readsEverything(by: 6)
        fixture.input.start(reader)
        fixture.output.start(writer)
        loop.serve { reader.events.last == .errorOccurred && !writer.events.isEmpty }
        #expect(reader.bytes == pattern(10) && fixture.input.streamErrno == .brokenPipe)
        #expect(writer.events == [.errorOccurred])
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a fault that a blocking read finds is also the other half's`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        // A peer with unread bytes goes: a reset, in all families.
        #expect(fixture.output.write([1]) == 1)
        try fixture.peer.reset()
        var byte: UInt8 = 0
        #expect(fixture.input.read(&byte, maxLength: 1) == -1 && isGone(fixture.input.streamError))
        #expect(fixture.output.hasSpaceAvailable == false || fixture.output.writeOnce([1]) == -1)
        #expect(isGone(fixture.output.streamError) && fixture.output.streamStatus == .error)
    }

    @Test func `ending the output of a connection that was reset fails with the reset`() throws {
        let fixture = try SocketFixture(.ipv4)
        try fixture.openBoth()
        try fixture.peer.reset()
        waitUntil { fixture.input.hasBytesAvailable }
        #expect(throws: (any Error).self) { try fixture.output.shutDown() }
        #expect(fixture.output.streamErrno == .connectionReset)
    }

    @Test func `a descriptor that is not an open socket fails at the first byte`() throws {
        let pipe = try TestPipe()
        let cases = [
            (pipe.readEnd, Errno.notSocket), (FileDescriptor(rawValue: 1_000_000), .badFileDescriptor),
        ]
        for (descriptor, error) in cases {
            let pair = Stream.connection(descriptor: descriptor)
            pair.input.open()
            pair.output.open()
            #expect(pair.output.writeOnce([1]) == -1 && pair.output.streamErrno == error)
            #expect(pair.input.read(upTo: 1).isEmpty && pair.input.streamErrno == error)
        }
    }
}
