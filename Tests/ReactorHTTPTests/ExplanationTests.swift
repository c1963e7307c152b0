import Dispatch
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What a transfer says of its silence.
@Suite(.runLoop) struct ExplanationTests {
    /// Runs the loop until the explanation of `transfer`, which is read in each pass, contains `text`.
    private static func wait(for text: String, from transfer: HTTPTransfer) {
        let (loop, isMet) = (RunLoop.current, Shared(false))
        let observer = RunLoop.Observer(for: .beforeWaiting) { _, _ in
            guard transfer.explain().contains(text) else { return }
            isMet.value = true
            loop.stop()
        }
        loop.add(observer, forMode: .default)
        loop.run { !isMet.value }
        observer.invalidate()
    }

    @Test func `a transfer tells how far it is, that it is suspended, and that it has ended`() throws {
        let gate = Answer<Bool>()
        let server = try TestServer.halting(until: gate, "abc", "defg")
        let launch = HTTPSession().launch(server.url)
        let transfer = launch.transfer
        Self.wait(for: "3 bytes of 7", from: transfer)
        #expect(transfer.explain().contains(server.url))
        transfer.suspend()
        #expect(transfer.explain().contains("resume()"))
        transfer.resume()
        gate.give(true)
        #expect(launch.wait().kind == nil)
        #expect(transfer.explain().contains("ended"))
    }

    @Test func `a transfer names the mode that pauses it, or says that its loop does not run`() throws {
        let (server, loop) = (try TestServer.sized(5), RunLoop.current)
        let launch = HTTPSession(modes: [.default]).launch(server.url)
        let explanation = launch.transfer.explain()
        #expect(explanation.contains("not running"))
        Timer.scheduled(after: .zero, forMode: .tracking) { [transfer = launch.transfer] _ in
            #expect(transfer.explain().contains("tracking") && transfer.explain().contains("default"))
            loop.stop()
        }
        loop.run(in: .tracking)
        #expect(launch.wait().kind == nil)
    }

    @Test func `transfers tell what they wait for: others of their host, a queue, the next attempt`() throws {
        let (gate, queue) = (Answer<Bool>(), DispatchQueue(label: "slow callbacks"))
        let server = try TestServer.halting(until: gate)
        let session = HTTPSession {
            $0.maxConnectionsPerHost = 1
            ($0.retries, $0.retryDelay) = (1, .seconds(1000))
        }
        queue.suspend()
        let first = session.start(
            HTTPRequest(server.url), to: .handler { _ in }, delivery: .queue(queue)
        ) { _ in }
        Self.wait(for: "'slow callbacks'", from: first)
        Self.wait(for: "maxConnectionsPerHost", from: session.launch(server.url).transfer)
        let closed = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress
        let third = session.launch("http://\(closed)/")
        Self.wait(for: "again", from: third.transfer)
        session.invalidateAndCancel()
        #expect(third.wait().kind == .sessionEnded)
        gate.give(true)
        queue.resume()
    }
}
