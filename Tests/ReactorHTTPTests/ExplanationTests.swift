import Dispatch
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What a transfer says of its silence, to a thread that is not its loop's.
@Suite(.runLoop) struct ExplanationTests {
    /// A server that sends the head and half of the body, and the rest once `gate` is opened.
    private static func halting(_ gate: Answer<Bool>) throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
            _ = gate.wait()
            peer.send("b")
            peer.waitForEnd()
        }
    }

    private static func waitFor(_ text: String, from transfer: HTTPTransfer) {
        waitUntil { transfer.explain().contains(text) }
    }

    @Test func `a transfer tells how far it is, that it is suspended, and that it has ended`() throws {
        let gate = Answer<Bool>()
        let server = try Self.halting(gate)
        let thread = try RunLoopThread(name: "explained")
        let session = HTTPSession(on: thread.runLoop)
        let transfer = session.start(HTTPRequest(server.url)) { _ in }
        Self.waitFor(
            "The transfer of \(server.url) receives the response: 1 byte of 2 so far.", from: transfer)
        transfer.suspend()
        #expect(transfer.explain().hasSuffix(" is suspended: call resume()."))
        transfer.resume()
        gate.give(true)
        Self.waitFor("has ended, and its completion was called", from: transfer)
        thread.stop()
    }

    @Test func `a transfer names the mode that keeps it from going on, or that its loop does not run`()
        async throws
    {
        let gate = Answer<Bool>()
        let server = try Self.halting(gate)
        try await onItsOwnThread {
            let loop = RunLoop.current
            let session = HTTPSession(on: loop, modes: [.default])
            let ended = Shared(false)
            let transfer = session.start(HTTPRequest(server.url)) { _ in
                ended.value = true
                loop.stop()
            }
            #expect(transfer.explain().hasSuffix(" is not running."))
            Timer.scheduled(after: .zero, forMode: .tracking) { _ in
                #expect(
                    transfer.explain().hasSuffix(
                        " runs in tracking, and it is only in default."))
                loop.stop()
            }
            loop.run(in: .tracking)
            gate.give(true)
            loop.run { !ended.value }
        }
    }

    @Test func `transfers tell what they wait for: others of their host, a queue, the next attempt`() throws {
        let gate = Answer<Bool>()
        let server = try Self.halting(gate)
        let thread = try RunLoopThread(name: "explained")
        let queue = DispatchQueue(label: "slow callbacks")
        let session = HTTPSession(
            {
                var configuration = HTTPSession.Configuration()
                configuration.maxConnectionsPerHost = 1
                configuration.retries = 1
                configuration.retryDelay = .seconds(1000)
                return configuration
            }(), on: thread.runLoop)
        queue.suspend()
        let first = session.start(HTTPRequest(server.url), to: .handler { _ in }, delivery: .queue(queue)) {
            _ in
        }
        Self.waitFor(" to deliver: its queue 'slow callbacks' has not called it back yet.", from: first)
        let second = session.start(HTTPRequest(server.url)) { _ in }
        Self.waitFor(" waits for another transfer to http://127.0.0.1:", from: second)
        let closed = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress
        let third = session.start(HTTPRequest("http://\(closed)/")) { _ in }
        Self.waitFor(" will be sent again in ", from: third)
        session.invalidateAndCancel()
        Self.waitFor("has ended", from: third)
        gate.give(true)
        queue.resume()
        thread.stop()
    }
}
