import CReactorTestSupport
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What libcurl's interface makes easy to get wrong.
@Suite(.runLoop) struct TrapTests {
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

    @Test func `a body of which one read decodes to more than the consumer has room for arrives whole`()
        async throws
    {
        let (folder, size) = (TemporaryFolder(), 200_000_000)
        let gzip = try Child("/bin/sh", ["-c", "head -c \(size) /dev/zero | gzip > \(folder.path("bomb"))"])
        _ = gzip.wait()
        let bomb = try #require(content(of: folder.path("bomb")))
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: \(bomb.count)\r\n\r\n")
            peer.send(bomb)
            peer.waitForEnd()
        }
        let count = Shared(0)
        let handler = HTTPDestination.handler { event in
            if case .bytes(let bytes) = event { count.update { $0 += bytes.count } }
        }
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.bytesInFlight = 65_536 }.run(HTTPRequest(server.url), to: handler)
        }
        #expect(outcome.kind == nil)
        #expect(count.value == size)
    }

    @Test func `a loop that receives events serves its timers meanwhile`() async throws {
        let size = 64 << 20
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            let piece = [UInt8](repeating: 97, count: 1 << 20)
            for _ in 0..<size >> 20 { peer.send(piece) }
        }
        let network = try RunLoopThread(name: "network")
        var configuration = HTTPSession.Configuration()
        configuration.bytesInFlight = size
        let session = HTTPSession(configuration, on: network.runLoop)
        let (inPass, most) = (Shared(0), Shared(0))
        try await onItsOwnThread {
            let (loop, isDone) = (RunLoop.current, Shared(false))
            let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in inPass.value = 0 }
            loop.add(observer, forMode: .default)
            let handler = HTTPDestination.handler { event in
                guard case .bytes(let bytes) = event else { return }
                // Slower than the server.
                usleep(1000)
                let count = inPass.update { count in
                    count += bytes.count
                    return count
                }
                most.update { $0 = max($0, count) }
            }
            session.start(
                HTTPRequest(server.url), to: handler, delivery: .runLoop(loop, modes: [.default])
            ) { outcome in
                #expect(outcome.kind == nil)
                isDone.value = true
                loop.stop()
            }
            let timer = Timer.scheduled(every: .seconds(1000)) { _ in }
            loop.run { !isDone.value }
            timer.invalidate()
            observer.invalidate()
            network.stop()
        }
        #expect(most.value <= 4 << 20)
    }

    @Test func `callbacks are never called inside libcurl, also if their loop has ended`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            _ = peer.receive(300_000)
            peer.send(response(body: "hello"))
        }
        let (network, client) = (try RunLoopThread(name: "network"), try RunLoopThread(name: "client"))
        let (outcome, wrong) = (Answer<Outcome>(), Shared(0))
        try await onItsOwnThread {
            client.stop()
            let session = HTTPSession(on: network.runLoop)
            @Sendable func note() { if network.runLoop.isCurrent { wrong.update { $0 += 1 } } }
            let body = HTTPRequest.Body.bytes([UInt8](repeating: 97, count: 300_000))
            session.start(
                HTTPRequest(server.url, method: "PUT", body: body), to: .handler { _ in note() },
                delivery: .runLoop(client.runLoop), progress: { _ in note() }
            ) { result in
                note()
                outcome.give(result)
            }
            #expect(outcome.wait().kind == nil)
            network.stop()
        }
        #expect(wrong.value == 0)
    }

    @Test func `running out of descriptors is an error with its errno`() async {
        await #expect(processExitsWith: .success) {
            let server = try TestServer.responding { _, _ in response(body: "hello") }
            try await onItsOwnThread {
                let session = HTTPSession()
                precondition(session.run(server.url).body == "hello")
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let next = dup(0)
                close(next)
                limit.rlim_cur = rlim_t(next)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                guard case .failure(let error) = session.run("http://127.0.0.1:1/") else { fatalError() }
                precondition(error.kind == .connect)
                precondition(error.errno == .tooManyOpenFiles)
            }
        }
    }

    /// With HTTP/2, libcurl names one transfer of a socket.
    @Test(.enabled(if: Nginx.isAvailable))
    func `all transfers of a connection that cannot be watched fail`() async {
        await #expect(processExitsWith: .success) {
            let server = try Nginx.shared.get()
            try await onItsOwnThread {
                let (loop, kinds) = (RunLoop.current, Trace())
                let session = HTTPSession {
                    $0.trustRoots = server.certificate
                    $0.maxConnectionsPerHost = 1
                    $0.idleTimeout = .seconds(5)
                }
                precondition(session.run(server.secure + "/hello.txt").body == "hello\n")
                guard reactor_test_refuse_epoll_additions() else { return }
                for _ in 0..<5 {
                    session.start(HTTPRequest(server.secure + "/bytes.bin")) { outcome in
                        guard case .failure(let error) = outcome else { fatalError() }
                        kinds("\(error.kind) \(error.errno == .noMemory)")
                        loop.stop()
                    }
                }
                loop.run { kinds.all.count < 5 }
                precondition(kinds.all == Array(repeating: "connect true", count: 5), "\(kinds.all)")
            }
        }
    }

    @Test(arguments: ["5-10/-9223372036854775808", "5-9223372036854775807/-9223372036854775808"])
    func `a range of a file with a negative length is asked for anew`(range: String) async {
        await #expect(processExitsWith: .success) { [range = range as String] in
            let folder = TemporaryFolder()
            _ = try folder.file("hello".utf8, name: "file.part")
            _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
            let server = try TestServer.responding { head, _ in
                head.contains("Range:")
                    ? response("206 Partial Content", ["Content-Range: bytes \(range)"], body: " world")
                    : response(body: "hello world")
            }
            try await onItsOwnThread {
                let file = HTTPDestination.file(folder.path.appending("file"), resumes: true)
                precondition(HTTPSession().run(HTTPRequest(server.url), to: file).kind == nil)
            }
        }
    }

    @Test(arguments: ["GET", "HEAD"])
    func `a length that is announced takes no memory`(method: String) async {
        await #expect(processExitsWith: .success) { [method = method as String] in
            let server = try TestServer { peer, _ in
                _ = peer.readHead()
                let start = method == "HEAD" ? "" : "hello"
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(1 << 62)\r\n\r\n" + start)
            }
            try await onItsOwnThread {
                let request = HTTPRequest(server.url, method: method)
                let kind = HTTPSession().run(request, to: .memory(limit: .max)).kind
                precondition(kind == (method == "HEAD" ? nil : .truncated))
            }
        }
    }

    @Test func `a proxy that refuses to connect is an error of the connection`() async {
        await #expect(processExitsWith: .success) {
            let proxy = try TestServer.responding { _, _ in response("403 Forbidden") }
            setenv("https_proxy", proxy.url, 1)
            unsetenv("no_proxy")
            try await onItsOwnThread {
                let outcome = HTTPSession().run("https://example.invalid/")
                guard case .failure(let error) = outcome else { fatalError("connected") }
                precondition(error.kind == .connect && error.errno == nil)
                precondition(proxy.requests.all.count == 1)
            }
        }
    }

    @Test func `a stream with a negative length traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = HTTPRequest.Body.stream(InputStream(data: []), length: -1)
        }
        #expect(
            result.message.contains("HTTPRequest.Body.stream must have a length of at least 0 (it is -1)."))
    }

    @Test func `a session without a connection for a host traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = HTTPSession { $0.maxConnectionsPerHost = 0 }
        }
        #expect(result.message.contains("maxConnectionsPerHost must be at least 1 (it is 0)."))
    }

    @Test func `reading without a buffer traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = HTTPSession().startReading(HTTPRequest("http://127.0.0.1:1/"), bufferSize: 0)
        }
        #expect(result.message.contains("startReading needs a positive buffer size (it is 0)."))
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
