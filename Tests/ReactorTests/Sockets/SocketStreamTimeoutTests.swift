import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamTimeoutTests {
    private let loop = RunLoop.current

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `an idle connection fails both halves`(origin: SocketOrigin, isSetBefore: Bool) throws {
        let (fixture, begin) = (try SocketFixture(origin), Deadline.now)
        let (reader, writer) = (Recorder(), Recorder())
        if isSetBefore { fixture.output.idleTimeout = .milliseconds(20) }
        fixture.input.start(reader)
        fixture.output.start(writer)
        if !isSetBefore {
            loop.serve { writer.events.count == 2 }
            fixture.output.idleTimeout = .milliseconds(20)
        }
        loop.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
        #expect(Deadline.now - begin >= .milliseconds(20))
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
        fixture.closeBoth()
        #expect(loop.run(in: .default) == .finished)
        #expect(reader.count(.errorOccurred) == 1 && writer.count(.errorOccurred) == 1)
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `bytes that arrived before the timeout are read before the error`(
        origin: SocketOrigin, isScheduled: Bool
    ) throws {
        let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
        try fixture.openBoth()
        if isScheduled { fixture.schedule(reader, writer) }
        try fixture.peer.send(pattern(10))
        if isScheduled { loop.serve { reader.events.last == .hasBytesAvailable } }
        waitUntil { fixture.input.hasBytesAvailable }
        fixture.input.idleTimeout = .milliseconds(10)
        if isScheduled { loop.serve { writer.events.last == .errorOccurred } }
        waitUntil { fixture.output.streamStatus == .error }
        #expect(fixture.input.streamStatus == .open)
        #expect(fixture.input.read(upTo: 6) == pattern(6))
        #expect(fixture.input.read(upTo: 6) == [6, 7, 8, 9])
        if isScheduled { loop.serve { reader.events.last == .errorOccurred } }
        #expect(fixture.input.streamErrno == .timedOut)
        fixture.closeBoth()
        #expect(loop.run(in: .default) == .finished)
        #expect(reader.count(.errorOccurred) == (isScheduled ? 1 : 0))
    }

    @Test(arguments: SocketOrigin.allCases)
    func `an idle connection that is on no loop fails both halves`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        fixture.input.idleTimeout = .milliseconds(10)
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus == .error } }
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a peer that does not read fails both halves after the write timeout`(origin: SocketOrigin) throws {
        let (fixture, begin) = (try SocketFixture(origin, isNarrow: true), Deadline.now)
        let (reader, writer) = (Recorder(), Recorder())
        fixture.input.writeTimeout = .milliseconds(20)
        writer.onEvent = { _, event in
            if event == .hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(50_000)) }
        }
        fixture.input.start(reader)
        fixture.output.start(writer)
        loop.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
        #expect(Deadline.now - begin >= .milliseconds(20))
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a timeout ends a blocking read, and a blocking write when the peer stops again`(
        origin: SocketOrigin
    ) throws {
        var fixture = try SocketFixture(origin)
        try fixture.openBoth()
        fixture.input.idleTimeout = .milliseconds(10)
        var byte: UInt8 = 0
        #expect(fixture.input.read(&byte, maxLength: 1) == -1)
        #expect(fixture.input.streamErrno == .timedOut)

        fixture = try SocketFixture(origin, isNarrow: true)
        fixture.output.writeTimeout = .seconds(10_000)
        try fixture.openBoth()
        let (peer, size) = (try fixture.peer, 200_000)
        let receiver = try Background { peer.receive(size).count }
        #expect(fixture.output.write(pattern(size)) == size && receiver.value == size)
        fixture.output.writeTimeout = .milliseconds(20)
        let begin = Deadline.now
        #expect(fixture.output.write(pattern(4_000_000)) < 4_000_000)
        #expect(Deadline.now - begin >= .milliseconds(20))
        #expect(fixture.output.streamErrno == .timedOut)
    }

    @Test func `a write timeout wakes no thread while no byte waits`() async {
        await #expect(processExitsWith: .success) {
            let fixture = try SocketFixture(.descriptor)
            fixture.output.writeTimeout = .nanoseconds(1)
            try fixture.openBoth()
            try #require(fixture.output.writeOnce([1]) == 1)
            let passes = try streamsLoop().performAndWait { RunLoop.current.passesInAWhile() }
            try #require(passes < 50)
            try #require(fixture.output.streamStatus == .open)
        }
    }

    #if DEBUG
    @Test func `received and sent bytes count as activity`() throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        fixture.output.idleTimeout = .seconds(10_000)
        try fixture.openBoth()
        recorder.readsEverything()
        fixture.input.start(recorder)
        let opened = try #require(fixture.input.lastActivity)
        #expect(fixture.output.writeOnce([1]) == 1)
        let written = try #require(fixture.input.lastActivity)
        try fixture.peer.send([1])
        loop.serve { recorder.bytes == [1] }
        #expect(try opened < written && written < #require(fixture.input.lastActivity))
    }

    @Test func `no timer outlives its timeout or the streams`() throws {
        let fixture = try SocketFixture()
        fixture.input.idleTimeout = .milliseconds(1)
        fixture.input.idleTimeout = nil
        try fixture.openBoth()
        #expect(!fixture.input.hasTimeoutTimer)
        fixture.input.idleTimeout = .seconds(3600)
        #expect(fixture.input.hasTimeoutTimer)
        fixture.input.idleTimeout = nil
        #expect(!fixture.input.hasTimeoutTimer)
        fixture.input.idleTimeout = .seconds(3600)
        fixture.closeBoth()
        #expect(!fixture.input.hasTimeoutTimer)
        fixture.input.setProperty(Duration.seconds(3600), forKey: .socketIdleTimeoutKey)
        #expect(!fixture.input.hasTimeoutTimer)
    }

    @Test func `no timer stays when the streams close while another thread sets a timeout`() throws {
        for _ in 0..<100 {
            let fixture = try SocketFixture(.descriptor)
            try fixture.openBoth()
            let (carrier, isSetting) = (Carrier(fixture), Countdown(1))
            onThreads(2) { index in
                let fixture = carrier.value
                if index == 0 {
                    isSetting.wait()
                    return fixture.closeBoth()
                }
                repeat {
                    fixture.input.setProperty(Duration.seconds(3600), forKey: .socketIdleTimeoutKey)
                    isSetting.count()
                } while fixture.streams.contains { $0.streamStatus != .closed }
            }
            try #require(!fixture.input.hasTimeoutTimer)
        }
    }
    #endif
}
