import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SocketStreamTimeoutTests {
    private let reader = Recorder()
    private let writer = Recorder()

    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `the write timeout applies again whenever the peer stops`(origin: SocketOrigin) throws {
        try withVirtualTime { time in
            let fixture = try SocketFixture(origin, isNarrow: true)
            fixture.connection.writeTimeout = .seconds(100)
            try fixture.start(reader, writer)
            func fill() -> Int {
                var sent = 0
                while fixture.output.hasSpaceAvailable { sent += fixture.output.writeOnce(pattern(5000)) }
                return sent
            }
            for _ in 0..<3 {
                let sent = fill()
                time.advance(by: .seconds(60))
                #expect(try fixture.peer.receive(sent).count == sent)
                if !fixture.output.hasSpaceAvailable {
                    let told = writer.count(.hasSpaceAvailable)
                    RunLoop.current.serve { writer.count(.hasSpaceAvailable) > told }
                }
            }
            _ = fill()
            time.advance(by: .seconds(99))
            #expect(fixture.output.streamStatus == .open)
            time.advance(by: .seconds(2))
            #expect(fixture.output.streamErrno == .timedOut && fixture.input.streamErrno == .timedOut)
        }
    }

    @Test(arguments: SocketOrigin.allCases)
    func `received and sent bytes count as activity`(origin: SocketOrigin) throws {
        try withVirtualTime { time in
            let fixture = try SocketFixture(origin)
            fixture.connection.idleTimeout = .seconds(10)
            reader.readsEverything()
            try fixture.start(reader, writer)
            for count in 1...3 {
                time.advance(by: .seconds(6))
                try fixture.peer.send([1])
                RunLoop.current.serve { reader.bytes.count == count }
                time.advance(by: .seconds(6))
                #expect(fixture.output.writeOnce([1]) == 1)
            }
            time.advance(by: .seconds(9))
            #expect(fixture.streams.allSatisfy { $0.streamStatus == .open })
            time.advance(by: .seconds(2))
            #expect(fixture.streams.allSatisfy { $0.streamErrno == .timedOut })
        }
    }

    @Test func `clear bytes that a session has kept count as activity when they are read`() throws {
        try withVirtualTime { time in
            let fixture = try SocketFixture.protected()
            fixture.connection.idleTimeout = .seconds(10)
            fixture.schedule(reader, writer)
            try fixture.peer.send(Masking.record(.data, [1, 2]))
            RunLoop.current.serve { reader.count(.hasBytesAvailable) == 1 }
            #expect(fixture.input.read(upTo: 1) == [1])
            time.advance(by: .seconds(8))
            #expect(fixture.input.read(upTo: 1) == [2])
            time.advance(by: .seconds(9))
            #expect(fixture.streams.allSatisfy { $0.streamStatus == .open })
            time.advance(by: .seconds(2))
            #expect(fixture.streams.allSatisfy { $0.streamErrno == .timedOut })
        }
    }

    @Test func `a write timeout wakes no thread while no byte waits`() async {
        await #expect(processExitsWith: .success) {
            let fixture = try SocketFixture(.descriptor)
            fixture.connection.writeTimeout = .nanoseconds(1)
            try fixture.openBoth()
            try #require(fixture.output.writeOnce([1]) == 1)
            let passes = try streamsLoop().performSynchronously { RunLoop.current.passesInAWhile() }
            try #require(passes < 50)
            try #require(fixture.output.streamStatus == .open)
        }
    }

    #if DEBUG
    @Test func `no timer outlives its timeout or the streams`() throws {
        let fixture = try SocketFixture()
        fixture.connection.idleTimeout = .milliseconds(1)
        fixture.connection.idleTimeout = nil
        try fixture.openBoth()
        #expect(fixture.input.timeoutTimer == nil)
        for closes in [false, true] {
            fixture.connection.idleTimeout = .seconds(3600)
            let timer = try #require(fixture.input.timeoutTimer)
            #expect(timer.isValid)
            if closes { fixture.closeBoth() } else { fixture.connection.idleTimeout = nil }
            #expect(!timer.isValid && fixture.input.timeoutTimer == nil)
        }
        fixture.connection.idleTimeout = .seconds(3600)
        #expect(fixture.input.timeoutTimer == nil)
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
                    fixture.connection.idleTimeout = .seconds(3600)
                    isSetting.count()
                } while fixture.streams.contains { $0.streamStatus != .closed }
            }
            try #require(fixture.input.timeoutTimer == nil)
        }
    }
    #endif
}
