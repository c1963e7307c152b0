import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct MainLoopTests {
    @Test func `the main loop runs the main queues and the main actor`() async throws {
        let lines = try await runFoundationProbe("main queues")
        #expect(lines == ["operation on main: true true", "4 blocks ran"])
    }

    @Test func `OperationQueue.main runs run loop operations and their dependents`()
        async throws
    {
        #expect(try await runFoundationProbe("operations in the main queue") == ["finished: true"])
    }

    @Test func `operations can work on the main loop`() async throws {
        #expect(
            try await runFoundationProbe("operations on the main loop") == [
                "a on main: true", "b on main: true",
            ])
    }

    @Test func `the main thread's notification queue posts while the main loop runs`() async throws {
        #expect(try await runFoundationProbe("notification queue") == ["now", "soon", "idle"])
    }

    @Test func `file handles post notifications on the main loop`() async throws {
        #expect(try await runFoundationProbe("file handles") == ["first", "second"])
    }

    @Test func `requests that end with their thread leak no descriptors`() async throws {
        #expect(try await runFoundationProbe("requests leak no descriptors") == ["0"])
    }

    @Test func `ports leak no descriptors`() async throws {
        #expect(try await runFoundationProbe("ports leak no descriptors") == ["0"])
    }

    @Test func `ports of two processes exchange messages`() throws {
        let probe = try Child("foundation-probe", ["echo port"])
        let number = try #require(probe.readLine().flatMap(UInt16.init))
        let remote = try #require(SocketPort(remoteWithTCPPort: number, host: "localhost"))
        let mailbox = Mailbox()
        let port = try SocketPort.listening(mailbox)
        for index in 0..<10 { remote.sendTexts("message \(index)", number: 10 * index, from: port) }
        mailbox.wait(10)
        #expect(mailbox.texts == (0..<10).map { "message \($0)" })
        #expect(mailbox.messages.map(\.msgid) == (0..<10).map { 10 * $0 + 1 })
        remote.sendTexts("end")
        #expect(remainingLines(of: probe) == ["ended"])
        port.invalidate()
    }
}
