import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Modes, suspension and timeouts.
@Suite(.runLoop) struct ModeTests {
    private static let (limit, hour) = (Duration.seconds(60), Duration.seconds(3600))
    private static let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

    /// A session in the default mode only, with all timeouts.
    private static func limited() -> HTTPSession {
        HTTPSession(
            {
                ($0.idleTimeout, $0.connectTimeout) = (limit, limit)
                $0.totalTimeout = limit + .seconds(5)
            }, inModes: [.default])
    }

    /// Starts a transfer and serves the head and the first byte of a body of two.
    private static func begin(
        _ session: HTTPSession, _ time: VirtualTime, _ trace: Trace = Trace(),
        onBytes: @escaping @Sendable () -> Void = {}
    ) throws -> (Launch, SocketPeer) {
        let server = try PlayedServer()
        let destination = HTTPDestination.pieces {
            trace(String(decoding: $0, as: UTF8.self))
            onBytes()
        }
        let launch = session.launch(HTTPRequest(server.url), to: destination)
        let peer = try server.accept(time)
        peer.send(head + "a")
        time.advance(by: .zero)
        return (launch, peer)
    }

    @Test(arguments: ["another mode", "callback", "observer"])
    func `a transfer stands still while its modes are not served, and no timeout counts that time`(
        place: String
    ) throws {
        try withVirtualTime { time in
            let trace = Trace()
            @Sendable func pass() { time.advance(by: Self.hour, inMode: .tracking) }
            let (launch, peer) = try Self.begin(Self.limited(), time, trace) {
                if place == "callback", trace.all == ["a"] { pass() }
            }
            if place == "observer" {
                let observer = RunLoop.Observer(for: .beforeWaiting, repeats: false) { _, _ in pass() }
                RunLoop.current.add(observer, forMode: .default)
                time.advance(by: .milliseconds(1))
            }
            peer.send("b")
            if place == "another mode" { pass() }
            #expect(trace.all == ["a"])
            #expect(launch.wait().kind == nil)
            #expect(trace.all == ["a", "b"])
        }
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
        try withVirtualTime { time in
            let (server, trace) = (try PlayedServer(), Trace())
            let session = HTTPSession { $0.idleTimeout = Self.limit }
            let launch = session.launch(HTTPRequest(server.url), to: .handler { _ in trace("event") })
            launch.transfer.suspend()
            time.advance(by: Self.hour)
            #expect(!server.isAsked)
            launch.transfer.resume()
            try server.accept(time).send(Self.head + "ab")
            #expect(launch.wait().kind == nil)
            #expect(trace.all == ["event", "event"])
        }
    }

    /// A response with no body ends at once.
    @Test(
        arguments: [
            (.get, "204 No Content", ""), (.head, "200 OK", ""), (.get, "200 OK", ""),
            (.get, "200 OK", "hello"),
        ] as [(HTTPRequest.Method, String, String)])
    func `the response of a suspended transfer waits until it is resumed`(
        method: HTTPRequest.Method, status: String, body: String
    ) throws {
        try withVirtualTime { time in
            let (server, trace) = (try PlayedServer(), Trace())
            let request = HTTPRequest(server.url, method: method)
            let launch = HTTPSession().launch(request, to: .handler { _ in trace("event") })
            let peer = try server.accept(time)
            launch.transfer.suspend()
            peer.send(status.hasPrefix("204") ? "HTTP/1.1 \(status)\r\n\r\n" : response(status, body: body))
            time.advance(by: Self.hour)
            #expect(trace.all.isEmpty)
            launch.transfer.resume()
            #expect(launch.wait().kind == nil)
            #expect(trace.all.count == (body.isEmpty ? 1 : 2))
        }
    }

    @Test func `the idle timeout begins anew when a transfer is resumed`() throws {
        try withVirtualTime { time in
            let session = HTTPSession { $0.idleTimeout = Self.limit }
            let (launch, peer) = try Self.begin(session, time)
            launch.transfer.suspend()
            time.advance(by: Self.hour)
            launch.transfer.resume()
            time.advance(by: Self.limit - .seconds(1))
            peer.send("b")
            #expect(launch.wait().kind == nil)
        }
    }

    /// The session carries out a hundred requests in a pass of its loop, and checks the timeout in each of these passes.
    @Test func `a resumed transfer does not time out before the session has resumed it`() throws {
        try withVirtualTime { time in
            let session = HTTPSession { $0.idleTimeout = Self.limit }
            let other = session.launch("nonsense").transfer
            let (launch, peer) = try Self.begin(session, time)
            launch.transfer.suspend()
            // The timeout is checked after 60 s, and is due again when the next pass begins.
            time.advance(by: Self.limit * 2 - .milliseconds(50))
            for _ in 0..<1000 { other.resume() }
            launch.transfer.resume()
            time.advance(by: .milliseconds(100), inMode: .tracking)
            peer.send("b")
            #expect(launch.wait().kind == nil)
        }
    }

    @Test func `resuming a transfer that is not suspended does not put off its idle timeout`() throws {
        try withVirtualTime { time in
            let session = HTTPSession {
                $0.idleTimeout = Self.limit
                $0.totalTimeout = Self.hour
            }
            let (launch, peer) = try Self.begin(session, time)
            let timer = Timer.scheduled(every: .seconds(20)) { _ in launch.transfer.resume() }
            #expect(launch.wait().kind == .timedOut(.idle))
            timer.invalidate()
            peer.close()
        }
    }

    // MARK: Timeouts

    @Test(arguments: [HTTPError.Timeout.connect, .idle, .total])
    func `a stalled handshake, a stalled body and a long transfer time out`(timeout: HTTPError.Timeout) throws
    {
        try withVirtualTime { time in
            let (silent, start) = (try PlayedServer(), time.now)
            let url = silent.url.replacing("http:", with: "https:")
            if timeout == .connect {
                #expect(Self.limited().run(url).kind == .timedOut(.connect))
            } else {
                let (launch, peer) = try Self.begin(Self.limited(), time)
                // Suspended, it waits for no server.
                if timeout == .total { launch.transfer.suspend() }
                #expect(launch.wait().kind == .timedOut(timeout))
                peer.close()
            }
            let passed = start.duration(to: time.now)
            #expect(passed >= Self.limit && passed < Self.limit * 2)
        }
    }

    @Test func `a transfer that waits for a connection does not time out`() throws {
        try withVirtualTime { time in
            let session = HTTPSession { ($0.maxConnections, $0.connectTimeout) = (1, Self.limit) }
            let (first, peer) = try Self.begin(session, time)
            first.transfer.suspend()
            let server = try PlayedServer()
            let second = session.launch(server.url)
            time.advance(by: Self.hour)
            first.transfer.cancel()
            try server.accept(time).send(Self.head + "ab")
            #expect(second.wait().body == "ab")
            #expect(first.wait().kind == .cancelled)
            peer.close()
        }
    }

    /// Sends a head byte by byte, for longer than the timeout, on the thread of the client.
    private static func sendSlowly(_ time: VirtualTime, _ send: (String) -> Void) {
        for piece in ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Slow: ", "a", "a", "a"] {
            let hold = time.hold()
            send(piece)
            _ = RunLoop.current.run(in: .default, returnAfterSourceHandled: true)
            hold.end()
            time.advance(by: limit * 2 / 3)
        }
        send("\r\n\r\nok")
    }

    @Test func `a head that arrives byte by byte is no idle transfer`() throws {
        try withVirtualTime { time in
            let (server, session) = (try PlayedServer(), HTTPSession { $0.idleTimeout = Self.limit })
            let launch = session.launch(server.url)
            let peer = try server.accept(time)
            Self.sendSlowly(time) { peer.send($0) }
            #expect(launch.wait().body == "ok")
        }
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
        try withVirtualTime { time in
            let session = HTTPSession {
                $0.idleTimeout = Self.limit
                $0.trustRoots = nginx.certificate
            }
            let (launch, hold, loop) = (
                session.launch("https://localhost:\(port)/"), time.hold(), RunLoop.current
            )
            let asked = try JoinableThread(name: "asked") { [server = Carrier(server)] in
                _ = line("GET ", of: server.value)
                loop.perform { loop.stop() }
            }
            _ = loop.run(in: .default)
            asked.join()
            hold.end()
            Self.sendSlowly(time, server.write)
            #expect(launch.wait().body == "ok")
        }
        server.send(SIGKILL)
        _ = server.wait()
    }

    @Test func `timeouts without an end never pass`() throws {
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

    @Test func `the connect timeout does not count the delay of a retry`() throws {
        try withVirtualTime { time in
            let (silent, start) = (try PlayedServer(), time.now)
            let session = HTTPSession {
                $0.connectTimeout = Self.limit
                ($0.retries, $0.retryDelay) = (1, .seconds(90))
            }
            let outcome = session.run(silent.url.replacing("http:", with: "https:"))
            #expect(outcome.kind == .timedOut(.connect))
            #expect(start.duration(to: time.now) >= .seconds(210))
        }
    }

    @Test func `the time before a retry doubles, to an hour at most`() throws {
        try withVirtualTime { time in
            let closed = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress
            let (session, start) = (
                HTTPSession { ($0.retries, $0.retryDelay) = (4, .seconds(1000)) }, time.now
            )
            #expect(session.run("http://\(closed)/").kind == .connect)
            let passed = start.duration(to: time.now)
            #expect(passed >= .seconds(10_200) && passed < .seconds(10_500))
        }
    }

    @Test func `the total timeout includes the retries and their delays`() throws {
        try withVirtualTime { time in
            let closed = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress
            let (session, start) = (
                HTTPSession {
                    ($0.retries, $0.retryDelay) = (100, .seconds(100))
                    $0.totalTimeout = .seconds(250)
                }, time.now
            )
            let launch = session.launch("http://\(closed)/")
            #expect(launch.wait().kind == .timedOut(.total))
            // The second retry would come after 300 seconds.
            #expect(launch.transfer.progress.retryCount == 2)
            let passed = start.duration(to: time.now)
            #expect(passed >= .seconds(250) && passed < .seconds(260))
        }
    }

    @Test func `the progress reports how often a request is sent again, and why`() throws {
        try withVirtualTime { time in
            let server = try PlayedServer()
            let session = HTTPSession { ($0.retries, $0.retryDelay) = (2, .seconds(1000)) }
            let request = session.launch(server.url)
            #expect(request.transfer.progress.retryReason == nil)
            do { _ = try server.accept(time) }  // closed at once
            while request.transfer.progress.retryCount == 0 { time.advance(by: .milliseconds(1)) }
            #expect(!server.isAsked)
            #expect(request.transfer.progress.retryReason?.kind == .connectionLost)
            time.advance(by: .seconds(1000))
            let peer = try server.accept(time)
            peer.send(response(body: "second"))
            #expect(request.wait().body == "second")
            #expect(request.transfer.progress.retryCount == 1)
        }
    }

    @Test func `a failed request is retried if that is safe`() throws {
        let server = try TestServer.sending { _, number in
            number == 2 ? response("200 OK", ["Connection: close"], body: "third") : ""
        }
        let session = HTTPSession { ($0.retries, $0.retryDelay) = (2, .milliseconds(1)) }
        #expect(session.run(server.url).body == "third")
        #expect(session.run(HTTPRequest(server.url, method: .post)).kind == .connectionLost)
        #expect(server.requests.all.count == 4)
    }
}
