import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct MainLoopTests {
    @Test func `the main loop runs what is put in the main queues`() async throws {
        let lines = try await probeFoundation("main queues")
        #expect(lines == ["operation on main: true true", "all four"])
    }

    @Test func `the main queue runs operations that work on a loop, and those that depend on them`()
        async throws
    {
        #expect(try await probeFoundation("operations in the main queue") == ["finished: true"])
    }

    @Test func `operations work on the main loop`() async throws {
        #expect(
            try await probeFoundation("operations on the main loop") == [
                "a on main: true", "b on main: true",
            ])
    }

    @Test func `the main thread's notification queue posts while the main loop runs`() async throws {
        #expect(try await probeFoundation("notification queue") == ["now", "soon", "idle"])
    }

    @Test func `file handles tell the main loop`() async throws {
        #expect(try await probeFoundation("file handles") == ["written", "once more"])
    }

    @Test func `requests of file handles that end with their thread leave no descriptors`() async throws {
        #expect(try await probeFoundation("requests leave no descriptors") == ["0"])
    }

    @Test func `ports leave no descriptors`() async throws {
        #expect(try await probeFoundation("ports leave no descriptors") == ["0"])
    }

    @Test func `ports of two processes talk to each other`() async throws {
        try await onItsOwnThread {
            let probe = try Child("foundation-probe", ["echo port"])
            let number = try #require(probe.readLine().flatMap(UInt16.init))
            let remote = try #require(SocketPort(remoteWithTCPPort: number, host: "localhost"))
            let mailbox = Mailbox()
            let port = try SocketPort.listening(mailbox)
            for index in 0..<10 { remote.say("message \(index)", number: 10 * index, from: port) }
            mailbox.wait(10)
            #expect(mailbox.texts == (0..<10).map { "message \($0)" })
            #expect(mailbox.messages.map(\.msgid) == (0..<10).map { 10 * $0 + 1 })
            remote.say("end")
            #expect(finish(probe) == ["ended"])
            port.invalidate()
        }
    }
}
