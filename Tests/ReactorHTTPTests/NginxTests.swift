import Dispatch
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop, .enabled(if: Nginx.isAvailable, "nginx and openssl are installed or unpacked"))
struct NginxTests {
    private let server: Nginx

    init() throws { server = try Nginx.shared.get() }

    private func run(
        _ path: String, _ configure: @escaping @Sendable (inout HTTPSession.Configuration) -> Void = { _ in }
    )
        async throws -> Outcome
    {
        let url = path.hasPrefix("http") ? path : server.plain + path
        return try await onItsOwnThread { HTTPSession(configure).run(url) }
    }

    @Test func `a large body arrives whole`() async throws {
        let body = try await run("/bytes.bin").get().body
        #expect(body == Nginx.bytes)
    }

    @Test func `a redirect is followed, and its URL reported`() async throws {
        let response = try await run("/moved").get()
        #expect(response.body == Array("hello\n".utf8))
        #expect(response.url == server.plain + "/hello.txt")
    }

    @Test func `a redirect that is not followed is a response`() async throws {
        let response = try await run("/moved") { $0.maxRedirects = 0 }.get()
        #expect(response.status == 302)
        #expect(response.fields["Location"]?.hasSuffix("/hello.txt") == true)
    }

    @Test func `redirects that never end are an error`() async throws {
        #expect(try await run("/loop") { $0.maxRedirects = 5 }.kind == .tooManyRedirects)
    }

    @Test(arguments: [("/missing", 404), ("/broken", 500)])
    func `a status that is not success is a response`(path: String, status: Int) async throws {
        #expect(try await run(path).get().status == status)
    }

    @Test func `a compressed body is decoded`() async throws {
        let response = try await run("/gzip/text.txt").get()
        #expect(String(decoding: response.body, as: UTF8.self) == Nginx.text)
        #expect(response.fields["Content-Encoding"] == "gzip")
    }

    @Test func `compression is not asked for unless it is wanted`() async throws {
        let response = try await run("/gzip/text.txt") { $0.acceptsCompressedBodies = false }.get()
        #expect(response.fields["Content-Encoding"] == nil)
    }

    @Test func `a range is a partial response`() async throws {
        let request = HTTPRequest(server.plain + "/bytes.bin", fields: ["Range": "bytes=10-19"])
        let response = try await onItsOwnThread { try HTTPSession().run(request).get() }
        #expect(response.status == 206)
        #expect(response.body == Array(Nginx.bytes[10..<20]))
    }

    @Test func `a HEAD request has a head only`() async throws {
        let request = HTTPRequest(server.plain + "/bytes.bin", method: "HEAD")
        let last = Shared<HTTPTransfer.Progress?>(nil)
        let response = try await onItsOwnThread {
            try HTTPSession().run(request, progress: { last.value = $0 }).get()
        }
        #expect(last.value?.bytesExpected == 0)
        #expect(response.contentLength == Nginx.bytes.count)
        #expect(response.body.isEmpty)
    }

    @Test(arguments: [HTTPSession.Versions.automatic, .http1])
    func `TLS with a trusted certificate works in each version`(versions: HTTPSession.Versions) async throws {
        let certificate = server.certificate
        let response = try await run(server.secure + "/bytes.bin") {
            $0.trustRoots = certificate
            $0.versions = versions
        }.get()
        #expect(response.body == Nginx.bytes)
        #expect(response.version == (versions == .http1 ? .http11 : .http2))
    }

    @Test func `an unknown certificate is refused`() async throws {
        #expect(try await run(server.secure + "/hello.txt").kind == .tls)
    }

    @Test func `a certificate for another host is refused`() async throws {
        let certificate = server.certificate
        let url = server.secure.replacing("localhost", with: "127.0.0.1") + "/hello.txt"
        #expect(try await run(url) { $0.trustRoots = certificate }.kind == .tls)
        #expect(try await run(url) { $0.serverVerification = .insecureNone }.body == "hello\n")
    }

    @Test func `many small files arrive over a few connections`() async throws {
        let url = server.plain + "/hello.txt"
        let bodies = Shared(0)
        try await onItsOwnThread {
            let session = HTTPSession { $0.maxConnectionsPerHost = 8 }
            let loop = RunLoop.current
            for _ in 0..<1000 {
                session.start(HTTPRequest(url)) { outcome in
                    if outcome.body == "hello\n" { bodies.update { $0 += 1 } }
                    if bodies.value == 1000 { loop.stop() }
                }
            }
            loop.run { bodies.value < 1000 }
        }
        #expect(bodies.value == 1000)
    }

    @Test func `multiplexed transfers of one connection arrive whole`() async throws {
        let (url, certificate) = (server.secure + "/bytes.bin", server.certificate)
        let outcomes = Shared<[Outcome]>([])
        try await onItsOwnThread {
            let session = HTTPSession {
                $0.trustRoots = certificate
                $0.maxConnectionsPerHost = 1
            }
            let loop = RunLoop.current
            for _ in 0..<6 {
                session.start(HTTPRequest(url)) { outcome in
                    outcomes.update { $0.append(outcome) }
                    loop.stop()
                }
            }
            loop.run { outcomes.value.count < 6 }
        }
        #expect(try outcomes.value.allSatisfy { try $0.get().body == Nginx.bytes })
    }

    @Test func `a slow consumer does not stop the other transfers of its connection`() async throws {
        let (url, certificate) = (server.secure + "/bytes.bin", server.certificate)
        let (slow, fast, gate, count) = (Answer<Outcome>(), Answer<Outcome>(), Answer<Bool>(), Shared(0))
        let thread = try RunLoopThread(name: "network")
        var configuration = HTTPSession.Configuration()
        configuration.trustRoots = certificate
        configuration.maxConnectionsPerHost = 1
        configuration.bytesInFlight = 65_536
        let session = HTTPSession(configuration, on: thread.runLoop)
        let handler = HTTPDestination.handler { event in
            guard case .bytes(let bytes) = event else { return }
            _ = gate.wait()
            count.update { $0 += bytes.count }
        }
        let queue = DispatchQueue(label: "slow")
        session.start(HTTPRequest(url), to: handler, delivery: .queue(queue)) { slow.give($0) }
        for _ in 0..<3 { session.start(HTTPRequest(url)) { fast.give($0) } }
        try await onItsOwnThread {
            let first = try fast.wait().get()
            #expect(first.body == Nginx.bytes)
            gate.give(true)
            let last = try slow.wait().get()
            #expect(last.version == .http2)
            thread.stop()
        }
        #expect(count.value == Nginx.bytes.count)
    }

    @Test func `transfers of one connection are cancelled, suspended and limited one by one`() async throws {
        let (secure, certificate) = (server.secure, server.certificate)
        let trace = Trace()
        try await onItsOwnThread {
            let session = HTTPSession {
                $0.trustRoots = certificate
                $0.maxConnectionsPerHost = 1
            }
            let connection = try session.run(secure + "/connection").get()
            #expect(connection.version == .http2)
            let (loop, wholeCount, held) = (RunLoop.current, Shared(0), Shared<[HTTPTransfer]>([]))
            @Sendable func start(
                _ path: String, _ name: String, first: (@Sendable () -> Void)? = nil
            ) -> HTTPTransfer {
                let count = Shared(0)
                let handler = HTTPDestination.handler { event in
                    guard case .bytes(let bytes) = event else { return }
                    if count.value == 0 { first?() }
                    count.update { $0 += bytes.count }
                }
                return session.start(HTTPRequest(secure + path), to: handler) { outcome in
                    let isWhole = outcome.kind == nil && count.value == Nginx.bytes.count
                    if name == "whole", isWhole { wholeCount.update { $0 += 1 } }
                    if name != "whole" || !isWhole {
                        trace("\(name) \(outcome.kind.map { "\($0)" } ?? "\(isWhole)")")
                    }
                    loop.stop()
                }
            }
            held.value = [
                start("/bytes.bin", "cancelled") { held.value[0].cancel() },
                start("/bytes.bin", "suspended") { held.value[1].suspend() },
                start("/slow/bytes.bin", "slow"),
            ]
            for _ in 0..<20 { _ = start("/bytes.bin", "whole") }
            loop.run { trace.all.count < 2 || wholeCount.value < 20 }
            #expect(trace.all.sorted() == ["cancelled cancelled", "slow true"])
            held.value[1].resume()
            loop.run { trace.all.count < 3 }
            #expect(trace.all.last == "suspended true")
            #expect(
                session.run(secure + "/connection").body == String(decoding: connection.body, as: UTF8.self))
        }
    }

    // MARK: Uploads

    private func upload(_ body: @escaping @Sendable () -> HTTPRequest.Body, as name: String) async throws
        -> [UInt8]?
    {
        let url = server.plain + "/upload/" + name
        let status = try await onItsOwnThread {
            try HTTPSession().run(HTTPRequest(url, method: "PUT", body: body())).get().status
        }
        #expect(status == 201)
        return content(of: server.folder.string + "/upload/" + name)
    }

    @Test func `a body in memory is uploaded`() async throws {
        #expect(try await upload({ .bytes(Nginx.bytes) }, as: "memory") == Nginx.bytes)
    }

    @Test func `a file is uploaded`() async throws {
        let path = server.folder.appending("bytes.bin")
        #expect(try await upload({ .file(path) }, as: "file") == Nginx.bytes)
    }

    @Test(arguments: [nil, Nginx.bytes.count])
    func `a stream is uploaded, with and without a length`(length: Int?) async throws {
        let name = "stream\(length ?? 0)"
        #expect(
            try await upload({ .stream(InputStream(data: Nginx.bytes), length: length) }, as: name)
                == Nginx.bytes)
    }

    @Test func `a file that is missing cannot be uploaded`() async throws {
        let request = HTTPRequest(server.plain + "/upload/x", method: "PUT", body: .file("/nonexistent/file"))
        let outcome = try await onItsOwnThread { HTTPSession().run(request) }
        #expect(outcome.kind == .read(IOError(.open, "/nonexistent/file", .noSuchFileOrDirectory)))
    }
}
