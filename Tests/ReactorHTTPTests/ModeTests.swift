import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Modes, suspension and time-outs.
@Suite(.runLoop) struct ModeTests {
    private static let limit = Duration.milliseconds(400)
    private static let longer = Duration.milliseconds(500)

    /// Runs the loop in a mode that the session does not use, for longer than the session's time-outs.
    private static func track() {
        let loop = RunLoop.current
        Timer.scheduled(after: longer, forMode: .tracking) { _ in loop.stop() }
        _ = loop.run(in: .tracking)
    }

    /// A session in the default mode only, with all time-outs.
    private static func limited() -> HTTPSession {
        HTTPSession(
            {
                ($0.idleTimeout, $0.connectTimeout) = (limit, limit)
                $0.totalTimeout = limit + .milliseconds(50)
            }, modes: [.default])
    }

    // MARK: Modes

    @Test func `a transfer stands still in another mode, and no time-out counts that time`() throws {
        let (gate, trace, loop) = (Answer<Bool>(), Trace(), RunLoop.current)
        let server = try TestServer.halting(until: gate)
        let session = Self.limited()
        let destination = HTTPDestination.pieces {
            trace(String(decoding: $0, as: UTF8.self))
            loop.stop()
        }
        let launch = session.launch(HTTPRequest(server.url), to: destination)
        loop.run { trace.all.isEmpty }
        gate.give(true)
        Self.track()
        #expect(trace.all == ["a"])
        #expect(launch.wait().kind == nil)
        #expect(trace.all == ["a", "b"])
    }

    @Test func `a callback that runs the loop in another mode lets no time-out pass`() throws {
        let (gate, trace) = (Answer<Bool>(), Trace())
        let server = try TestServer.halting(until: gate)
        let destination = HTTPDestination.pieces { bytes in
            trace(String(decoding: bytes, as: UTF8.self))
            guard trace.all == ["a"] else { return }
            Self.track()
            gate.give(true)
        }
        #expect(Self.limited().run(HTTPRequest(server.url), to: destination).kind == nil)
        #expect(trace.all == ["a", "b"])
    }

    @Test func `an observer that takes long before a wait lets no time-out pass`() throws {
        let (gate, hasBytes, loop) = (Answer<Bool>(), Shared(false), RunLoop.current)
        let server = try TestServer.halting(until: gate)
        let session = HTTPSession { $0.idleTimeout = Self.limit }
        let observer = RunLoop.Observer(for: .beforeWaiting, order: 10) { observer, _ in
            guard hasBytes.value else { return }
            observer.invalidate()
            usleep(500_000)
            Timer.scheduled(after: .milliseconds(100)) { _ in gate.give(true) }
        }
        loop.add(observer, forMode: .default)
        let destination = HTTPDestination.pieces { _ in hasBytes.value = true }
        #expect(session.run(HTTPRequest(server.url), to: destination).kind == nil)
    }

    @Test func `a transfer in the common modes continues in each of them`() throws {
        let (server, loop, body) = (try TestServer.sized(5), RunLoop.current, Shared<String?>(nil))
        let session = HTTPSession()
        session.start(HTTPRequest(server.url)) { outcome in
            body.value = outcome.body
            loop.stop()
        }
        loop.run(in: .tracking) { body.value == nil }
        #expect(body.value == "xxxxx")
    }

    // MARK: Suspension

    @Test func `a transfer that is suspended at once sends nothing until it is resumed`() throws {
        let (server, trace) = (try TestServer.responding { _, _ in response(body: "hello") }, Trace())
        let session = HTTPSession { $0.idleTimeout = Self.limit }
        let launch = session.launch(HTTPRequest(server.url), to: .handler { _ in trace("event") })
        launch.transfer.suspend()
        #expect(session.run(server.url).body == "hello")
        Timer.scheduled(after: Self.longer) { _ in
            #expect(server.requests.all.count == 1)
            #expect(trace.all.isEmpty)
            launch.transfer.resume()
        }
        #expect(launch.wait().kind == nil)
        #expect(trace.all == ["event", "event"])
    }

    /// A response with no body ends at once: the second transfer begins when libcurl has ended the first one.
    @Test(arguments: [
        ("GET", "204 No Content", ""), ("HEAD", "200 OK", ""), ("GET", "200 OK", ""),
        ("GET", "200 OK", "hello"),
    ])
    func `the response of a suspended transfer waits until it is resumed`(
        method: String, status: String, body: String
    ) throws {
        let (asked, gate, trace) = (Answer<Bool>(), Answer<Bool>(), Trace())
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                if head.contains(" /first ") {
                    asked.give(true)
                    _ = gate.wait()
                }
                let hasLength = !status.hasPrefix("204")
                peer.send(hasLength ? response(status, body: body) : "HTTP/1.1 \(status)\r\n\r\n")
            }
        }
        try withNetwork(.with { $0.maxConnectionsPerHost = body.isEmpty ? 1 : 2 }) { session in
            let request = HTTPRequest(server.url + "/first", method: method)
            let first = session.launch(request, to: .handler { _ in trace("event") })
            #expect(asked.wait())
            first.transfer.suspend()
            gate.give(true)
            #expect(session.run(HTTPRequest(server.url + "/second", method: method)).kind == nil)
            #expect(trace.all.isEmpty)
            first.transfer.resume()
            #expect(first.wait().kind == nil)
            #expect(trace.all.count == (body.isEmpty ? 1 : 2))
        }
    }

    /// Starts a transfer that suspends itself after its first byte.
    private static func launchSuspended(_ url: String, in session: HTTPSession) -> Launch {
        let (loop, transfer, trace) = (RunLoop.current, Shared<HTTPTransfer?>(nil), Trace())
        let launch = session.launch(
            HTTPRequest(url),
            to: .pieces { _ in
                trace("bytes")
                guard trace.all.count == 1 else { return }
                transfer.value?.suspend()
                loop.stop()
            })
        transfer.value = launch.transfer
        loop.run { trace.all.isEmpty }
        return launch
    }

    @Test func `the idle time-out begins anew when a transfer is resumed`() throws {
        let gate = Answer<Bool>()
        let (server, session) = (
            try TestServer.halting(until: gate), HTTPSession { $0.idleTimeout = Self.limit }
        )
        let launch = Self.launchSuspended(server.url, in: session)
        Timer.scheduled(after: Self.longer) { _ in
            launch.transfer.resume()
            Timer.scheduled(after: .milliseconds(100)) { _ in gate.give(true) }
        }
        #expect(launch.wait().kind == nil)
    }

    /// The session carries out a hundred requests in a pass of its loop, and checks the time-out in each of these passes.
    @Test func `a resumed transfer does not time out before the session has resumed it`() throws {
        let gate = Answer<Bool>()
        let (server, session) = (
            try TestServer.halting(until: gate), HTTPSession { $0.idleTimeout = Self.limit }
        )
        let other = session.launch("nonsense").transfer
        let launch = Self.launchSuspended(server.url, in: session)
        // The time-out is checked after 0.4 s, and is due again when this returns.
        Timer.scheduled(after: .milliseconds(600)) { _ in
            for _ in 0..<1000 { other.resume() }
            launch.transfer.resume()
            usleep(300_000)
            gate.give(true)
        }
        #expect(launch.wait().kind == nil)
    }

    @Test func `resuming a transfer that is not suspended does not put off its idle time-out`() throws {
        let server = try TestServer { peer, _ in peer.waitForEnd() }
        let session = HTTPSession {
            $0.idleTimeout = .milliseconds(100)
            $0.totalTimeout = .seconds(3)
        }
        let launch = session.launch(server.url)
        let timer = Timer.scheduled(every: .milliseconds(20)) { _ in launch.transfer.resume() }
        #expect(launch.wait().kind == .timedOut(.idle))
        timer.invalidate()
    }

    // MARK: Time-outs

    @Test func `a stalled body, a long transfer and a stalled handshake time out`() throws {
        let (gate, short) = (Answer<Bool>(), Duration.milliseconds(50))
        let halting = try TestServer.halting(until: gate)
        #expect(HTTPSession { $0.idleTimeout = short }.run(halting.url).kind == .timedOut(.idle))
        gate.give(true)
        let (endless, session) = (try TestServer.endless(), HTTPSession { $0.totalTimeout = short })
        let outcome = session.run(HTTPRequest(endless.url), to: .handler { _ in })
        #expect(outcome.kind == .timedOut(.total))
        let silent = try TestServer { peer, _ in peer.waitForEnd() }
        let url = silent.url.replacing("http:", with: "https:")
        #expect(HTTPSession { $0.connectTimeout = short }.run(url).kind == .timedOut(.connect))
    }

    @Test func `a transfer that waits for a connection does not time out`() throws {
        let server = try TestServer { peer, number in
            guard peer.readHead() != nil else { return }
            peer.send(number == 0 ? "HTTP/1.1 200 OK\r\n\r\na" : response(body: "\(number)"))
            if number == 0 { peer.waitForEnd() }
        }
        let session = HTTPSession {
            $0.maxConnections = 1
            $0.connectTimeout = Self.limit
        }
        let first = Self.launchSuspended(server.url, in: session)
        let second = session.launch(server.url)
        Timer.scheduled(after: Self.longer) { _ in first.transfer.cancel() }
        #expect(second.wait().body?.count == 1)
        #expect(first.wait().kind == .cancelled)
    }

    /// Sends a head byte by byte, for longer than the time-out.
    private static func sendSlowly(_ send: (String) -> Void) {
        send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Slow: ")
        for _ in 0..<10 {
            send("a")
            usleep(50_000)
        }
        send("\r\n\r\nok")
    }

    @Test func `a head that arrives byte by byte is no idle transfer`() throws {
        let server = try TestServer { peer, _ in
            if peer.readHead() != nil { Self.sendSlowly(peer.send) }
        }
        #expect(HTTPSession { $0.idleTimeout = Self.limit }.run(server.url).body == "ok")
    }

    @Test(.enabled(if: Nginx.isAvailable))
    func `nor is one over TLS, which the server does not multiplex`() throws {
        let nginx = try Nginx.shared.get()
        let server = try Child(
            "/usr/bin/openssl",
            [
                "s_server", "-accept", "127.0.0.1:0", "-cert", nginx.certificate.string,
                "-key", nginx.folder.appending("key.pem").string,
            ], input: .pipe, errors: .path("/dev/null"))
        @Sendable func line(_ start: String, of server: Child) -> String? {
            while let line = server.readLine() { if line.hasPrefix(start) { return line } }
            return nil
        }
        let port = try #require(line("ACCEPT", of: server)?.split(separator: ":").last)
        let sending = try JoinableThread(name: "sending") { [server = Carrier(server)] in
            if line("GET ", of: server.value) != nil { Self.sendSlowly(server.value.write) }
        }
        let session = HTTPSession {
            $0.idleTimeout = Self.limit
            $0.trustRoots = nginx.certificate
        }
        #expect(session.run("https://localhost:\(port)/").body == "ok")
        sending.join()
        server.send(SIGKILL)
        _ = server.wait()
    }

    @Test func `time-outs without an end never pass`() throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let session = HTTPSession {
            ($0.connectTimeout, $0.idleTimeout) = (.seconds(Int64.max), .seconds(Int64.max))
            $0.totalTimeout = .seconds(Int64.max)
        }
        let other = session.launch(server.url)
        other.transfer.suspend()
        for _ in 0..<3 { #expect(session.run(server.url).body == "hello") }
        other.transfer.cancel()
        #expect(other.wait().kind == .cancelled)
    }

    @Test func `the connect time-out does not count the delay of a retry`() throws {
        let silent = try TestServer { peer, _ in peer.waitForEnd() }
        let session = HTTPSession {
            $0.connectTimeout = .milliseconds(100)
            ($0.retries, $0.retryDelay) = (1, .milliseconds(150))
        }
        let start = ContinuousClock.now
        let outcome = session.run(silent.url.replacing("http:", with: "https:"))
        #expect(outcome.kind == .timedOut(.connect))
        #expect(start.duration(to: .now) >= .milliseconds(350))
    }

    @Test func `a failed request is retried if that is safe`() throws {
        let server = try TestServer.sending { _, number in
            number == 2 ? response("200 OK", ["Connection: close"], body: "third") : ""
        }
        let session = HTTPSession { ($0.retries, $0.retryDelay) = (2, .milliseconds(1)) }
        #expect(session.run(server.url).body == "third")
        #expect(session.run(HTTPRequest(server.url, method: "POST")).kind == .connectionLost)
        #expect(server.requests.all.count == 4)
    }
}
