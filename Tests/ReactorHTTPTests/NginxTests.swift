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

    private func run(_ path: String, _ configure: (inout HTTPSession.Configuration) -> Void = { _ in })
        -> Outcome
    {
        HTTPSession(configure).run(path.hasPrefix("http") ? path : server.plain + path)
    }

    @Test func `redirects are followed as often as allowed, and their URL reported`() throws {
        let followed = try run("/moved").get()
        #expect(followed.body == Array("hello\n".utf8))
        #expect(followed.url == server.plain + "/hello.txt")
        let first = try run("/moved") { $0.maxRedirects = 0 }.get()
        #expect(first.status == 302)
        #expect(first.headerFields[.location]?.hasSuffix("/hello.txt") == true)
        #expect(run("/loop") { $0.maxRedirects = 5 }.kind == .tooManyRedirects)
    }

    @Test func `a compressed body is decoded, and not asked for unless it is wanted`() throws {
        let response = try run("/gzip/text.txt").get()
        #expect(String(decoding: response.body, as: UTF8.self) == Nginx.text)
        #expect(response.headerFields[.contentEncoding] == "gzip")
        let plain = try run("/gzip/text.txt") { $0.acceptsCompressedBodies = false }.get()
        #expect(plain.headerFields[.contentEncoding] == nil)
    }

    @Test func `a range is a partial response, and a HEAD request has a head only`() throws {
        let range = HTTPRequest(server.plain + "/bytes.bin", headerFields: [.range: "bytes=10-19"])
        let part = try HTTPSession().run(range).get()
        #expect(part.status == 206)
        #expect(part.body == Array(Nginx.bytes[10..<20]))
        let launch = HTTPSession().launch(HTTPRequest(server.plain + "/bytes.bin", method: .head))
        let head = try launch.wait().get()
        #expect(launch.transfer.progress.bytesExpected == 0)
        #expect(head.contentLength == Nginx.bytes.count)
        #expect(head.body.isEmpty)
    }

    @Test(arguments: [HTTPSession.Versions.automatic, .http1])
    func `TLS with a trusted certificate works in each version`(versions: HTTPSession.Versions) throws {
        let response = try run(server.secure + "/bytes.bin") {
            $0.trustRoots = server.certificate
            $0.versions = versions
        }.get()
        #expect(response.body == Nginx.bytes)
        #expect(response.version == (versions == .http1 ? .http11 : .http2))
    }

    @Test func `a certificate that is unknown, or for another host, is refused`() throws {
        #expect(run(server.secure + "/hello.txt").kind == .tls)
        let url = server.secure.replacing("localhost", with: "127.0.0.1") + "/hello.txt"
        #expect(run(url) { $0.trustRoots = server.certificate }.kind == .tls)
        #expect(run(url) { $0.serverVerification = .insecureNone }.body == "hello\n")
    }

    private func multiplex(_ configuration: inout HTTPSession.Configuration) {
        configuration.trustRoots = server.certificate
        configuration.maxConnectionsPerHost = 1
        configuration.bytesInFlight = 65_536
    }

    @Test func `a slow consumer does not stop the other transfers of its connection`() throws {
        let (url, gate, count) = (server.secure + "/bytes.bin", Answer<Bool>(), Shared(0))
        let destination = HTTPDestination.pieces { bytes in
            _ = gate.wait()
            count.update { $0 += bytes.count }
        }
        try withNetwork(.with(multiplex)) { session in
            let queue = DispatchQueue(label: "slow")
            let slow = session.launch(HTTPRequest(url), to: destination, delivery: .queue(queue))
            let others = (0..<3).map { _ in session.launch(url) }
            for other in others { #expect((try? other.wait().get())?.body == Nginx.bytes) }
            gate.give(true)
            #expect((try? slow.wait().get())?.version == .http2)
        }
        #expect(count.value == Nginx.bytes.count)
    }

    @Test func `transfers of one connection are cancelled, suspended and limited one by one`() throws {
        let session = HTTPSession(multiplex)
        let connection = session.run(server.secure + "/connection").body
        let (cancelled, suspended) = (Shared<HTTPTransfer?>(nil), Shared<HTTPTransfer?>(nil))
        func launch(_ path: String, first: @escaping @Sendable () -> Void = {}) -> (Launch, Shared<Int>) {
            let count = Shared(0)
            let destination = HTTPDestination.pieces { bytes in
                if count.value == 0 { first() }
                count.update { $0 += bytes.count }
            }
            return (session.launch(HTTPRequest(server.secure + path), to: destination), count)
        }
        let early = launch("/bytes.bin") { cancelled.value?.cancel() }
        let paused = launch("/bytes.bin") { suspended.value?.suspend() }
        (cancelled.value, suspended.value) = (early.0.transfer, paused.0.transfer)
        let others = [launch("/slow/bytes.bin")] + (0..<10).map { _ in launch("/bytes.bin") }
        for (transfer, count) in others {
            #expect(transfer.wait().kind == nil)
            #expect(count.value == Nginx.bytes.count)
        }
        #expect(early.0.wait().kind == .cancelled)
        #expect(paused.1.value < Nginx.bytes.count)
        paused.0.transfer.resume()
        #expect(paused.0.wait().kind == nil)
        #expect(paused.1.value == Nginx.bytes.count)
        #expect(connection != nil && session.run(server.secure + "/connection").body == connection)
    }

    @Test(arguments: ["memory", "file", "stream", "stream with a length"])
    func `a body in memory, a file and a stream are uploaded`(kind: String) throws {
        let body: HTTPSource =
            switch kind {
            case "memory": .bytes(Nginx.bytes)
            case "file": .file(server.folder.appending("bytes.bin"))
            case "stream": .stream(InputStream(data: Nginx.bytes))
            default: .stream(InputStream(data: Nginx.bytes), length: Nginx.bytes.count)
            }
        let path = "/upload/" + kind.replacing(" ", with: "-")
        let request = HTTPRequest(server.plain + path, method: .put)
        #expect(try HTTPSession().run(request, body: body).get().status == 201)
        #expect(content(of: server.folder.string + path) == Nginx.bytes)
    }
}
