import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Modes and time-outs.
@Suite(.runLoop) struct ModeTests {
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
        let server = try TestServer { peer, number in
            _ = peer.readHead()
            peer.send(number == 0 ? "HTTP/1.1 200 OK\r\n\r\na" : response(body: "\(number)"))
            if number == 0 { peer.waitForEnd() }
        }
        let trace = Trace()
        try await onItsOwnThread {
            let session = HTTPSession {
                $0.maxConnections = 1
                $0.connectTimeout = .seconds(1)
            }
            let loop = RunLoop.current
            let handler = HTTPDestination.handler { event in if case .bytes = event { loop.stop() } }
            let first = session.start(HTTPRequest(server.url), to: handler) { trace("\($0.kind!)") }
            _ = loop.run(in: .default)
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

    @Test func `a transfer that is suspended at once sends nothing until it is resumed`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let trace = Trace()
        try await onItsOwnThread {
            let (session, loop) = (HTTPSession(), RunLoop.current)
            let handler = HTTPDestination.handler { _ in trace("event") }
            let transfer = session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind.map { "\($0)" } ?? "whole")")
                loop.stop()
            }
            transfer.suspend()
            #expect(session.run(server.url).body == "hello")
            #expect(server.requests.all.count == 1)
            #expect(trace.all.isEmpty)
            transfer.resume()
            loop.run { trace.all.last != "whole" }
        }
        #expect(trace.all == ["event", "event", "whole"])
    }

    /// A response with no body ends at once. The second transfer begins when libcurl has ended the first one.
    @Test(arguments: [("GET", "204 No Content"), ("HEAD", "200 OK"), ("GET", "200 OK")])
    func `a suspended transfer whose response has no body completes when it is resumed`(
        method: String, status: String
    ) async throws {
        let (asked, gate, trace) = (Answer<Bool>(), Answer<Bool>(), Trace())
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                if head.contains(" /first ") {
                    asked.give(true)
                    _ = gate.wait()
                }
                peer.send(
                    status.hasPrefix("204") ? "HTTP/1.1 \(status)\r\n\r\n" : response(status))
            }
        }
        try await onItsOwnThread {
            let network = try RunLoopThread(name: "network")
            var configuration = HTTPSession.Configuration()
            configuration.maxConnectionsPerHost = 1
            let session = HTTPSession(configuration, on: network.runLoop)
            let (first, second) = (Answer<Bool>(), Answer<Bool>())
            let handler = HTTPDestination.handler { _ in trace("head") }
            let request = HTTPRequest(server.url + "/first", method: method)
            let transfer = session.start(request, to: handler) { outcome in
                trace("end")
                first.give(outcome.kind == nil)
            }
            #expect(asked.wait())
            transfer.suspend()
            gate.give(true)
            session.start(HTTPRequest(server.url + "/second", method: method)) { outcome in
                second.give(outcome.kind == nil)
            }
            #expect(second.wait())
            #expect(trace.all == [])
            transfer.resume()
            #expect(first.wait())
            #expect(trace.all == ["head", "end"])
            network.stop()
        }
    }

    @Test func `the head of a suspended transfer waits until it is resumed`() async throws {
        let (requested, gate, trace) = (Answer<Bool>(), Answer<Bool>(), Trace())
        let server = try TestServer { peer, number in
            _ = peer.readHead()
            if number == 0 {
                requested.give(true)
                _ = gate.wait()
            }
            peer.send(response(body: "hello"))
            peer.waitForEnd()
        }
        let thread = try RunLoopThread(name: "network")
        try await onItsOwnThread {
            let session = HTTPSession(on: thread.runLoop)
            let (outcome, other) = (Answer<Outcome>(), Answer<Outcome>())
            let handler = HTTPDestination.handler { _ in trace("event") }
            let transfer = session.start(HTTPRequest(server.url), to: handler) { outcome.give($0) }
            _ = requested.wait()
            transfer.suspend()
            gate.give(true)
            // The bytes of the head have arrived when the answer to a later request has.
            session.start(HTTPRequest(server.url)) { other.give($0) }
            #expect(other.wait().body == "hello")
            #expect(trace.all.isEmpty)
            transfer.resume()
            #expect(outcome.wait().kind == nil)
            thread.stop()
        }
        #expect(trace.all == ["event", "event"])
    }

    @Test func `the idle time-out begins anew when a transfer is resumed`() async throws {
        let (gate, trace) = (Answer<Bool>(), Trace())
        let server = try Self.halting(gate)
        try await onItsOwnThread {
            let session = HTTPSession { $0.idleTimeout = .seconds(1) }
            let (loop, transfer) = (RunLoop.current, Shared<HTTPTransfer?>(nil))
            let handler = HTTPDestination.handler { event in
                guard case .bytes = event, trace.all.isEmpty else { return }
                trace("a")
                transfer.value?.suspend()
                loop.stop()
            }
            transfer.value = session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind.map { "\($0)" } ?? "whole")")
                loop.stop()
            }
            loop.run { trace.all.isEmpty }
            Timer.scheduled(after: .milliseconds(1900)) { _ in transfer.value?.resume() }
            Timer.scheduled(after: .milliseconds(2200)) { _ in gate.give(true) }
            loop.run { trace.all.count < 2 }
        }
        #expect(trace.all == ["a", "whole"])
    }

    /// The session carries out a hundred requests in a pass of its loop, and checks the time-out in each of these passes.
    @Test func `a resumed transfer does not time out before the session has resumed it`() async throws {
        let (gate, trace) = (Answer<Bool>(), Trace())
        let server = try Self.halting(gate)
        try await onItsOwnThread {
            let session = HTTPSession { $0.idleTimeout = .seconds(1) }
            let (loop, transfer) = (RunLoop.current, Shared<HTTPTransfer?>(nil))
            let other = session.start(HTTPRequest("nonsense")) { _ in }
            let handler = HTTPDestination.handler { event in
                guard case .bytes = event, trace.all.isEmpty else { return }
                trace("a")
                transfer.value?.suspend()
            }
            transfer.value = session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind.map { "\($0)" } ?? "whole")")
                loop.stop()
            }
            // The time-out is checked after one second, and is due again when this returns.
            Timer.scheduled(after: .milliseconds(1500)) { _ in
                for _ in 0..<1000 { other.resume() }
                transfer.value?.resume()
                usleep(700_000)
                gate.give(true)
            }
            loop.run { trace.all.count < 2 }
        }
        #expect(trace.all == ["a", "whole"])
    }

    @Test func `an observer that takes long before a wait lets no time-out pass`() async throws {
        let (gate, trace) = (Answer<Bool>(), Trace())
        let server = try Self.halting(gate)
        try await onItsOwnThread {
            let session = HTTPSession { $0.idleTimeout = .seconds(1) }
            let loop = RunLoop.current
            let handler = HTTPDestination.handler { event in if case .bytes = event { trace("bytes") } }
            session.start(HTTPRequest(server.url), to: handler) { outcome in
                trace("\(outcome.kind.map { "\($0)" } ?? "whole")")
                loop.stop()
            }
            let observer = RunLoop.Observer(for: .beforeWaiting, order: 10) { observer, _ in
                guard trace.all == ["bytes"] else { return }
                observer.invalidate()
                usleep(1_500_000)
                Timer.scheduled(after: .milliseconds(200)) { _ in gate.give(true) }
            }
            loop.add(observer, forMode: .default)
            loop.run { trace.all.count < 3 }
        }
        #expect(trace.all == ["bytes", "bytes", "whole"])
    }

    @Test func `a head that arrives byte by byte is no idle transfer`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Slow: ")
            for _ in 0..<13 {
                peer.send("a")
                usleep(200_000)
            }
            peer.send("\r\n\r\nok")
        }
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.idleTimeout = .seconds(2) }.run(server.url)
        }
        #expect(outcome.body == "ok")
    }

    @Test(.enabled(if: Nginx.isAvailable))
    func `nor is one over TLS, which the server does not multiplex`() async throws {
        let nginx = try Nginx.shared.get()
        let port = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress.port ?? 0
        let server = try Child(
            "/usr/bin/openssl",
            [
                "s_server", "-quiet", "-accept", "127.0.0.1:\(port)", "-cert", nginx.certificate.string,
                "-key", nginx.folder.appending("key.pem").string,
            ], input: .pipe, errors: .path("/dev/null"))
        waitUntil { (try? SocketPeer(connectedTo: .ipv4Loopback(port: port))) != nil }
        let sending = try ReactorTestSupport.JoinableThread(name: "sending") { [server = Carrier(server)] in
            _ = server.value.readOutput(lines: 1)
            server.value.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Slow: ")
            for _ in 0..<13 {
                server.value.write("a")
                usleep(200_000)
            }
            server.value.write("\r\n\r\nok")
        }
        let outcome = try await onItsOwnThread {
            HTTPSession {
                $0.idleTimeout = .seconds(2)
                $0.trustRoots = nginx.certificate
            }.run("https://localhost:\(port)/")
        }
        #expect(outcome.body == "ok")
        sending.join()
        server.send(SIGKILL)
        _ = server.wait()
    }

    @Test func `time-outs without an end never pass`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        try await onItsOwnThread {
            let session = HTTPSession {
                $0.connectTimeout = .seconds(Int64.max)
                $0.idleTimeout = .seconds(Int64.max)
                $0.totalTimeout = .seconds(Int64.max)
            }
            let other = session.start(HTTPRequest(server.url)) { _ in }
            other.suspend()
            for _ in 0..<3 { #expect(session.run(server.url).body == "hello") }
            other.cancel()
        }
    }

    @Test func `the connect time-out does not count the delay of a retry`() async throws {
        let (listener, count, gate) = (try SocketPeer(family: AF_INET), Shared(0), Answer<Bool>())
        try listener.bind(to: .ipv4Loopback(port: 0))
        let url = "http://127.0.0.1:\(try listener.localAddress.port ?? 0)"
        let outcome = try await onItsOwnThread {
            let session = HTTPSession {
                $0.connectTimeout = .milliseconds(50)
                ($0.retries, $0.retryDelay) = (20, .milliseconds(300))
            }
            // The connection is refused until then.
            Timer.scheduled(after: .milliseconds(150)) { _ in
                try? listener.listen()
                _ = try? ReactorTestSupport.JoinableThread(name: "server") {
                    while let peer = try? listener.accept() {
                        count.update { $0 += 1 }
                        _ = try? ReactorTestSupport.JoinableThread(name: "connection") {
                            _ = peer.readHead()
                            _ = gate.wait()
                            if !peer.receiveNow(upTo: 1).isEmpty { count.update { $0 += 1 } }
                            peer.send(response(body: "hello"))
                        }
                    }
                }
            }
            // A second attempt would have begun by then.
            Timer.scheduled(after: .milliseconds(900)) { _ in gate.give(true) }
            let outcome = session.run(url)
            shutdown(listener.number, CInt(SHUT_RDWR))
            return outcome
        }
        #expect(outcome.body == "hello")
        #expect(count.value == 1)
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
