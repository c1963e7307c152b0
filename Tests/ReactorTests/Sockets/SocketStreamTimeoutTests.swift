import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamTimeoutTests {
    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `an idle connection fails both halves`(
        origin: SocketOrigin, isSetBefore: Bool
    ) throws {
        let (fixture, begin) = (try SocketFixture(origin), Deadline.now)
        let (reader, writer) = (Recorder(), Recorder())
        func set() {
            #expect(fixture.output.setProperty(Duration.milliseconds(40), forKey: .socketIdleTimeoutKey))
        }
        if isSetBefore { set() }
        fixture.input.start(reader)
        fixture.output.start(writer)
        if !isSetBefore {
            RunLoop.current.serve { writer.events.count == 2 }
            set()
        }
        RunLoop.current.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
        #expect(Deadline.now - begin >= .milliseconds(40))
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
        fixture.closeBoth()
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(reader.count(.errorOccurred) == 1 && writer.count(.errorOccurred) == 1)
    }

    @Test(arguments: SocketOrigin.allCases)
    func `an idle connection that is on no loop fails both halves`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        fixture.input.idleTimeout = .milliseconds(20)
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus == .error } }
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `an input that is on no loop fails once the bytes before the timeout are read`(origin: SocketOrigin)
        throws
    {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        try fixture.peer.send([1, 2])
        waitUntil { fixture.input.hasBytesAvailable }
        fixture.output.idleTimeout = .milliseconds(20)
        waitUntil { fixture.output.streamStatus == .error }
        #expect(fixture.input.streamStatus == .open)
        #expect(fixture.input.read(upTo: 2) == [1, 2])
        #expect(fixture.input.streamErrno == .timedOut)
    }

    #if DEBUG
    @Test func `received and sent bytes count as activity`() throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        #expect(fixture.output.setProperty(Duration.seconds(10_000), forKey: .socketIdleTimeoutKey))
        try fixture.openBoth()
        recorder.readsEverything()
        fixture.input.start(recorder)
        let opened = try #require(fixture.input.lastActivity)
        #expect(fixture.output.writeOnce([1]) == 1)
        let written = try #require(fixture.input.lastActivity)
        try fixture.peer.send([1])
        RunLoop.current.serve { recorder.bytes == [1] }
        #expect(try opened < written && written < #require(fixture.input.lastActivity))
    }
    #endif

    @Test(arguments: SocketOrigin.allCases)
    func `bytes that arrived before the timeout are read before the error`(origin: SocketOrigin) async throws
    {
        try await onItsOwnThread {
            let (fixture, reader, writer) = (try SocketFixture(origin), Recorder(), Recorder())
            fixture.input.start(reader)
            fixture.output.start(writer)
            try fixture.peer.send(pattern(10))
            RunLoop.current.serve { reader.events.last == .hasBytesAvailable }
            #expect(fixture.input.setProperty(Duration.milliseconds(10), forKey: .socketIdleTimeoutKey))
            RunLoop.current.serve { writer.events.last == .errorOccurred }
            #expect(fixture.input.read(upTo: 6) == pattern(6))
            #expect(fixture.input.read(upTo: 6) == [6, 7, 8, 9])
            RunLoop.current.serve { reader.events.last == .errorOccurred }
            #expect(fixture.input.streamErrno == .timedOut)
            fixture.closeBoth()
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(reader.count(.errorOccurred) == 1)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a peer that does not read fails both halves after the write timeout`(origin: SocketOrigin)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, begin) = (try SocketFixture(origin, isNarrow: true), Deadline.now)
            let (reader, writer) = (Recorder(), Recorder())
            #expect(fixture.input.setProperty(Duration.milliseconds(60), forKey: .socketWriteTimeoutKey))
            fixture.input.start(reader)
            fixture.output.start(writer)
            RunLoop.current.serve { writer.events.count == 2 }
            writer.onEvent = { _, event in
                if event == .hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(50_000)) }
            }
            _ = fixture.output.writeOnce(pattern(50_000))
            RunLoop.current.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
            #expect(Deadline.now - begin >= .milliseconds(60))
            for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a timeout ends a blocking read or write`(origin: SocketOrigin) throws {
        var fixture = try SocketFixture(origin)
        try fixture.openBoth()
        #expect(fixture.input.setProperty(Duration.milliseconds(30), forKey: .socketIdleTimeoutKey))
        var byte: UInt8 = 0
        #expect(fixture.input.read(&byte, maxLength: 1) == -1)
        #expect(fixture.input.streamErrno == .timedOut)

        fixture = try SocketFixture(origin, isNarrow: true)
        try fixture.openBoth()
        #expect(fixture.input.setProperty(Duration.milliseconds(30), forKey: .socketWriteTimeoutKey))
        #expect(fixture.output.write(pattern(4_000_000)) < 4_000_000)
        #expect(fixture.output.streamErrno == .timedOut)
    }

    @Test func `a timeout that was removed does not expire`() throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        for key in [Stream.PropertyKey.socketIdleTimeoutKey, .socketWriteTimeoutKey] {
            #expect(fixture.input.setProperty(Duration.milliseconds(1), forKey: key))
            #expect(fixture.input.setProperty(nil, forKey: key))
        }
        fixture.input.start(recorder)
        try fixture.openBoth()
        RunLoop.current.run(in: .default, until: .after(milliseconds: 20))
        #expect(recorder.count(.errorOccurred) == 0 && fixture.output.writeOnce([1]) == 1)
    }

    @Test func `a write timeout wakes no thread while no byte waits`() async {
        await #expect(processExitsWith: .success) {
            let fixture = try SocketFixture(.descriptor)
            try #require(fixture.output.setProperty(Duration.nanoseconds(1), forKey: .socketWriteTimeoutKey))
            try fixture.openBoth()
            try #require(fixture.output.writeOnce([1]) == 1)
            let passes = try streamsLoop().performAndWait { RunLoop.current.passesInAWhile() }
            try #require(passes < 50)
            try #require(fixture.output.streamStatus == .open)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the write timeout applies again when the peer stops again`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin, isNarrow: true)
        func setTimeout(_ timeout: Duration) {
            #expect(fixture.output.setProperty(timeout, forKey: .socketWriteTimeoutKey))
        }
        setTimeout(.seconds(10_000))
        try fixture.openBoth()
        let (peer, size) = (try fixture.peer, 1_000_000)
        let receiver = try JoinableThread(name: "receiver") { _ = peer.receive(size) }
        #expect(fixture.output.write(pattern(size)) == size)
        receiver.join()
        setTimeout(.milliseconds(30))
        let begin = Deadline.now
        #expect(fixture.output.write(pattern(4_000_000)) < 4_000_000)
        #expect(Deadline.now - begin >= .milliseconds(30))
        #expect(fixture.output.streamErrno == .timedOut)
    }

    #if DEBUG
    @Test func `no timer outlives the streams`() throws {
        let fixture = try SocketFixture()
        #expect(fixture.input.setProperty(Duration.seconds(3600), forKey: .socketIdleTimeoutKey))
        try fixture.openBoth()
        #expect(fixture.input.hasTimeoutTimer)
        fixture.closeBoth()
        #expect(!fixture.input.hasTimeoutTimer)
        #expect(fixture.input.setProperty(Duration.seconds(3600), forKey: .socketIdleTimeoutKey))
        #expect(!fixture.input.hasTimeoutTimer)
    }

    @Test func `no timer stays when the streams close while another thread sets a timeout`() async throws {
        try await onItsOwnThread {
            for _ in 0..<500 {
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
    }
    #endif
}
