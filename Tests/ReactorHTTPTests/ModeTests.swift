import Reactor
import ReactorHTTP
import ReactorTestSupport
import Testing

/// Modes and time-outs.
@Suite struct ModeTests {
    /// A server that sends the head and one byte, and the other one once `gate` is opened.
    private static func halting(_ gate: Answer<Bool>) throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
            if gate.wait() { peer.send("b") }
            peer.waitForEnd()
        }
    }

    /// Runs the loop in a mode that the session does not use, for longer than the session's time-outs.
    private static func track() {
        let loop = RunLoop.current
        Timer.scheduled(after: .milliseconds(1500), forMode: .tracking) { _ in loop.stop() }
        _ = loop.run(in: .tracking)
    }

    private static let limits: @Sendable (inout HTTPSession.Configuration) -> Void = {
        $0.idleTimeout = .seconds(1)
        $0.connectTimeout = .seconds(1)
        $0.totalTimeout = .milliseconds(1400)
    }

    @Test func `a transfer stands still in another mode, and no time-out counts that time`() async throws {
        let (gate, trace) = (Answer<Bool>(), Trace())
        let server = try Self.halting(gate)
        try await onItsOwnThread {
            let session = HTTPSession(Self.limits, modes: [.default])
            let loop = RunLoop.current
            let handler = HTTPDestination.handler { event in
                guard case .bytes(let bytes) = event else { return }
                trace(String(decoding: bytes, as: UTF8.self))
                loop.stop()
            }
            session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind.map { "\($0)" } ?? "whole")")
                loop.stop()
            }
            loop.run { trace.all.isEmpty }
            gate.give(true)
            Self.track()
            #expect(trace.all == ["a"])
            loop.run { trace.all.last?.count == 1 }
        }
        #expect(trace.all == ["a", "b", "whole"])
    }

    @Test func `a callback that runs the loop in another mode lets no time-out pass`() async throws {
        let (gate, trace) = (Answer<Bool>(), Trace())
        let server = try Self.halting(gate)
        try await onItsOwnThread {
            let session = HTTPSession(Self.limits, modes: [.default])
            let loop = RunLoop.current
            let handler = HTTPDestination.handler { event in
                guard case .bytes = event, trace.all.isEmpty else { return }
                trace("tracking")
                Self.track()
                gate.give(true)
            }
            session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind.map { "\($0)" } ?? "whole")")
                loop.stop()
            }
            loop.run { trace.all.count < 2 }
        }
        #expect(trace.all == ["tracking", "whole"])
    }

    @Test func `a transfer in the common modes goes on in each of them`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let body = Shared<String?>(nil)
        try await onItsOwnThread {
            let session = HTTPSession()
            let loop = RunLoop.current
            session.start(HTTPRequest(server.url)) { outcome in
                body.value = outcome.body
                loop.stop()
            }
            loop.run(in: .tracking) { body.value == nil }
        }
        #expect(body.value == "hello")
    }

    @Test func `a stalled body times out`() async throws {
        let gate = Answer<Bool>()
        let server = try Self.halting(gate)
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.idleTimeout = .milliseconds(50) }.run(server.url)
        }
        #expect(outcome.kind == .timedOut(.idle))
        gate.give(false)
    }

    @Test func `a transfer that goes on for too long times out`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            while peer.send([97]) {}
        }
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.totalTimeout = .milliseconds(50) }.run(
                HTTPRequest(server.url), to: .handler { _ in })
        }
        #expect(outcome.kind == .timedOut(.total))
    }

    @Test func `a handshake that stalls times out as a connection`() async throws {
        let server = try TestServer { peer, _ in peer.waitForEnd() }
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.connectTimeout = .milliseconds(50) }
                .run(server.url.replacing("http:", with: "https:"))
        }
        #expect(outcome.kind == .timedOut(.connect))
    }

    @Test func `a transfer that waits for a connection does not time out`() async throws {
        let server = try TestServer.responding { _, number in response(body: "\(number)") }
        let trace = Trace()
        try await onItsOwnThread {
            let session = HTTPSession {
                $0.maxConnections = 1
                $0.connectTimeout = .seconds(1)
                $0.idleTimeout = .seconds(1)
            }
            let loop = RunLoop.current
            let first = session.start(HTTPRequest(server.url)) { trace("\($0.kind!)") }
            first.suspend()
            session.start(HTTPRequest(server.url)) { outcome in
                trace(outcome.body ?? "\(outcome.kind!)")
                loop.stop()
            }
            Timer.scheduled(after: .milliseconds(1500)) { _ in first.cancel() }
            loop.run { trace.all.count < 2 }
        }
        #expect(trace.all.first == "cancelled")
        #expect(trace.all.last?.count == 1)
    }

    @Test func `a suspended transfer delivers nothing until it is resumed`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let trace = Trace()
        try await onItsOwnThread {
            let session = HTTPSession { $0.idleTimeout = .seconds(1) }
            let loop = RunLoop.current
            let transfer = session.start(HTTPRequest(server.url)) { outcome in
                trace(outcome.body ?? "\(outcome.kind!)")
                loop.stop()
            }
            transfer.suspend()
            Timer.scheduled(after: .milliseconds(1500)) { _ in
                trace("resumed")
                transfer.resume()
            }
            loop.run { trace.all.count < 2 }
        }
        #expect(trace.all == ["resumed", "hello"])
    }

    @Test func `a failed request is retried if that is safe`() async throws {
        let server = try TestServer { peer, number in
            _ = peer.readHead()
            if number == 2 { peer.send(response(body: "third")) }
        }
        try await onItsOwnThread {
            let session = HTTPSession {
                $0.retries = 2
                $0.retryDelay = .milliseconds(1)
            }
            #expect(session.run(server.url).body == "third")
            #expect(session.run(HTTPRequest(server.url, method: "POST")).kind == .connectionLost)
        }
    }
}
