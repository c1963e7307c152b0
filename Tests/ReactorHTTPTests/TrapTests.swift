import Reactor
import ReactorHTTP
import ReactorTestSupport
import Testing

/// What libcurl's interface makes easy to get wrong.
@Suite struct TrapTests {
    @Test func `a pass of the loop receives a bounded number of bytes`() async throws {
        let size = 256 << 20
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            let piece = [UInt8](repeating: 97, count: 1 << 20)
            for _ in 0..<size >> 20 { peer.send(piece) }
        }
        let (inPass, most, total) = (Shared(0), Shared(0), Shared(0))
        try await onItsOwnThread {
            let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in
                most.update { $0 = max($0, inPass.value) }
                inPass.value = 0
            }
            RunLoop.current.add(observer, forMode: .default)
            let handler = HTTPDestination.handler { event in
                guard case .bytes(let bytes) = event else { return }
                inPass.update { $0 += bytes.count }
                total.update { $0 += bytes.count }
            }
            let session = HTTPSession { $0.bytesInFlight = 64 << 20 }
            #expect(session.run(HTTPRequest(server.url), to: handler).kind == nil)
            observer.invalidate()
        }
        #expect(total.value == size)
        #expect(most.value <= 8 << 20)
    }

    @Test(.enabled(if: Nginx.isAvailable)) func `a server that resets a TLS connection raises no signal`()
        async throws
    {
        let server = try Nginx.shared.get()
        for _ in 0..<5 {
            let outcome = try await onItsOwnThread {
                let session = HTTPSession {
                    $0.trustRoots = server.certificate
                    $0.versions = .http1
                }
                let body = HTTPRequest.Body.bytes([UInt8](repeating: 97, count: 32 << 20))
                return session.run(HTTPRequest(server.secure + "/refused", method: "PUT", body: body))
            }
            if case .success(let response) = outcome { #expect(response.status == 413) }
        }
    }

    @Test func `a descriptor number that is used again is watched again`() async throws {
        let server = try TestServer { peer, number in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n\(number % 10)")
        }
        try await onItsOwnThread {
            let session = HTTPSession()
            for number in 0..<50 { #expect(session.run(server.url).body == "\(number % 10)") }
        }
    }

    @Test func `a host's name is resolved off the loop`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let url = server.url.replacing("127.0.0.1", with: "localhost")
        #expect(try await onItsOwnThread { HTTPSession().run(url) }.body == "hello")
        #expect(try await onItsOwnThread { HTTPSession().run("http://name.invalid/") }.kind == .resolve)
    }

    @Test func `a body that decompresses to much more than it is passes in bounded pieces`() async throws {
        guard let server = try? Nginx.shared.get() else { return }
        let (count, largest) = (Shared(0), Shared(0))
        try await onItsOwnThread {
            let handler = HTTPDestination.handler { event in
                guard case .bytes(let bytes) = event else { return }
                count.update { $0 += bytes.count }
                largest.update { $0 = max($0, bytes.count) }
            }
            let session = HTTPSession { $0.bytesInFlight = 65_536 }
            #expect(session.run(HTTPRequest(server.plain + "/gzip/zeros"), to: handler).kind == nil)
        }
        #expect(count.value == 50_000_000)
        #expect(largest.value <= 131_072)
    }

    @Test func `callbacks are called on another loop`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let (network, client) = (try RunLoopThread(name: "network"), try RunLoopThread(name: "client"))
        let session = HTTPSession(on: network.runLoop)
        let places = Answer<[Bool]>()
        let wrong = Shared(0)
        let handler = HTTPDestination.handler { _ in
            if !client.runLoop.isCurrent { wrong.update { $0 += 1 } }
        }
        session.start(HTTPRequest(server.url), to: handler, delivery: .runLoop(client.runLoop)) { _ in
            places.give([client.runLoop.isCurrent])
        }
        try await onItsOwnThread {
            #expect(places.wait() == [true])
            #expect(wrong.value == 0)
            client.stop()
            // Its thread has ended: another one completes.
            let outcome = Answer<Outcome>()
            session.start(HTTPRequest(server.url), delivery: .runLoop(client.runLoop)) { outcome.give($0) }
            #expect(outcome.wait().body == "hello")
            network.stop()
        }
    }

    @Test func `a child process does not inherit a connection`() async throws {
        let closed = Answer<Bool>()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send(response(body: "hello"))
            peer.waitForEnd()
            closed.give(true)
        }
        try await onItsOwnThread {
            var session: HTTPSession? = HTTPSession()
            #expect(session?.run(server.url).body == "hello")
            let child = try Child("/bin/cat", [], input: .pipe)
            session = nil
            #expect(closed.wait())
            child.closeInput()
            _ = child.wait()
        }
    }
}
