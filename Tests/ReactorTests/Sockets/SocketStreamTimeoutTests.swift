import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamTimeoutTests {
    @Test(arguments: SocketOrigin.allCases)
    func `an idle connection that no thread uses fails both halves`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        try fixture.openBoth()
        fixture.input.idleTimeout = .milliseconds(10)
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus == .error } }
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `the write timeout applies again when the peer stops again`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin, isNarrow: true)
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
        RunLoop.current.serve { recorder.bytes == [1] }
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
