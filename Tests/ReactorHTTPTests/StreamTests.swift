import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

private func serve() { RunLoop.current.run(until: .now) }

/// Bodies that are read from a stream, and written to one.
@Suite(.runLoop) struct StreamTests {
    private static let body = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 >> 3) }

    private static func server() throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n")
            peer.send(body)
            peer.waitForEnd()
        }
    }

    /// Sends the beginning of a body in one segment with the end of the connection.
    private static func cutting() throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send(Array("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".utf8) + body.prefix(15_000))
        }
    }

    private static func readToEnd(_ stream: InputStream) -> [UInt8] {
        var bytes: [UInt8] = []
        while case let piece = stream.read(upTo: 10_000), !piece.isEmpty { bytes += piece }
        return bytes
    }

    // MARK: Reading

    @Test func `a body is read from a stream, at the reader's speed`() throws {
        let (server, outcome) = (try Self.server(), Answer<Outcome>())
        try withNetwork { session in
            let (stream, _) = session.startReading(
                HTTPRequest(server.url), bufferSize: 4096, completion: outcome.give)
            stream.open()
            #expect(Self.readToEnd(stream) == Self.body)
            #expect(stream.streamStatus == .atEnd)
            #expect(outcome.wait().kind == nil)
        }
    }

    @Test func `what was received before a failure is read from the stream, and then the error`() throws {
        let server = try Self.cutting()
        try withNetwork { session in
            let (stream, _) = session.startReading(HTTPRequest(server.url), bufferSize: 1000)
            stream.open()
            #expect(Self.readToEnd(stream) == Array(Self.body.prefix(15_000)))
            #expect(stream.streamStatus == .error)
            #expect((stream.streamError as? HTTPError)?.kind == .truncated)
        }
    }

    @Test func `a failed transfer is an event of its stream`() throws {
        let (server, loop, trace) = (try TestServer.sending(""), RunLoop.current, Trace())
        let (stream, _) = HTTPSession().startReading(HTTPRequest(server.url))
        let delegate = Listener { stream, event in
            if event == .errorOccurred { trace("\((stream.streamError as! HTTPError).kind)") }
            loop.stop()
        }
        stream.delegate = delegate
        stream.schedule(in: loop, forMode: .default)
        stream.open()
        loop.run { trace.all.isEmpty }
        #expect(trace.all == ["connectionLost"])
    }

    private final class Listener: StreamDelegate {
        private let body: (Reactor.Stream, Reactor.Stream.Event) -> Void

        init(_ body: @escaping (Reactor.Stream, Reactor.Stream.Event) -> Void) { self.body = body }

        func stream(_ stream: Reactor.Stream, handle event: Reactor.Stream.Event) { body(stream, event) }
    }

    @Test(arguments: [true, false])
    func `a transfer is cancelled by closing its stream, and while it drains`(closes: Bool) throws {
        let (server, outcome) = (closes ? try Self.server() : try Self.cutting(), Answer<Outcome>())
        try withNetwork { session in
            let (stream, transfer) = session.startReading(
                HTTPRequest(server.url), bufferSize: 1000, completion: outcome.give)
            stream.open()
            #expect(stream.read(upTo: 10).count == 10)
            if closes { stream.close() } else { transfer.cancel() }
            #expect(outcome.wait().kind == .cancelled)
        }
    }

    // MARK: Writing

    @Test(arguments: [true, false])
    func `what is received is written at the stream's speed`(isWhole: Bool) throws {
        let server = isWhole ? try Self.server() : try Self.cutting()
        let ((reader, writeEnd), received) = (try SocketPeer.pair(), Answer<[UInt8]>())
        SocketPeer.narrow(writeEnd.rawValue)
        _ = try JoinableThread(name: "reader") { received.give(reader.receiveToEnd(by: 1000) ?? []) }
        let output = OutputStream(descriptor: writeEnd, closeWhenDone: true)
        let outcome = HTTPSession().run(HTTPRequest(server.url), to: .stream(output))
        #expect(outcome.kind == (isWhole ? nil : .truncated))
        #expect(received.wait() == (isWhole ? Self.body : Array(Self.body.prefix(15_000))))
    }

    @Test func `a stream that fails ends its transfer`() throws {
        let server = try Self.server()
        let output = OutputStream(path: "/dev/full")
        let error = HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).error
        guard case .write = error?.kind else { return #expect(error?.kind == nil, "not a write error") }
        #expect(error?.errno == .noSpace)
    }

    /// A stream of the client's, which runs the loop in each method.
    private final class Output: OutputStream {
        let bytes = Shared<[UInt8]>([])

        override func open() {
            super.open()
            serve()
        }

        override func close() {
            serve()
            super.close()
        }

        override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
            super.schedule(in: aRunLoop, forMode: mode)
            serve()
        }

        override var hasSpaceAvailable: Bool { true }

        override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
            bytes.update { $0 += UnsafeBufferPointer(start: buffer, count: min(len, 30_000)) }
            serve()
            return super.write(buffer, maxLength: min(len, 30_000))
        }
    }

    /// A stream of the client's, which runs the loop in each method.
    private final class Source: InputStream {
        override func open() {
            super.open()
            serve()
        }

        override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
            super.schedule(in: aRunLoop, forMode: mode)
            serve()
        }

        override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
            serve()
            return super.read(buffer, maxLength: min(len, 10_000))
        }

        override func close() {
            serve()
            super.close()
        }
    }

    private static let text = String(repeating: "x", count: 200_000)

    @Test(
        arguments: [
            (response(body: text), nil), ("", .connectionLost),
            ("HTTP/1.1 307 Moved\r\nLocation: /\r\n\r\n", .bodyNotRepeatable),
            ("HTTP/1.1 200 OK\r\nContent-Length: 200001\r\n\r\n\(text)", .truncated),
        ] as [(String, HTTPError.Kind?)])
    func `streams may run the loop in each of their methods while other transfers continue`(
        answer: String, kind: HTTPError.Kind?
    ) throws {
        let (endless, session, loop) = (try TestServer.endless(), HTTPSession(), RunLoop.current)
        let other = session.launch(HTTPRequest(endless.url), to: .pieces { _ in loop.stop() })
        _ = loop.run(in: .default)
        let server = try TestServer { peer, _ in
            guard peer.readHead() != nil, !answer.isEmpty else { return }
            _ = peer.receive(Self.body.count)
            peer.send(answer)
        }
        let (body, output) = (Source(data: Self.body), Output())
        let bytes = output.bytes
        let (request, source) = (
            HTTPRequest(server.url, method: .put), HTTPSource.stream(body, length: Self.body.count)
        )
        #expect(session.run(request, body: source, to: .stream(output)).kind == kind)
        #expect(bytes.value == (answer.hasSuffix(Self.text) ? Array(Self.text.utf8) : []))
        #expect(session.run(HTTPRequest("http://"), to: .stream(Output())).kind == .invalidURL)
        other.transfer.cancel()
        #expect(other.wait().kind == .cancelled)
    }

    /// A stream of the client's that delivers no events.
    private final class Silent: OutputStream {
        let bytes = Shared<[UInt8]>([])
        private var status = Status.notOpen

        override func open() { status = .open }
        override func close() { status = .closed }
        override var streamStatus: Status { status }
        override var hasSpaceAvailable: Bool { true }
        override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
            bytes.update { $0 += UnsafeBufferPointer(start: buffer, count: min(len, 1000)) }
            return min(len, 1000)
        }
    }

    @Test func `a subclass that accepts a part of each piece needs no events while it has room`() throws {
        let (server, output) = (try Self.server(), Silent())
        let bytes = output.bytes
        #expect(HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).kind == nil)
        #expect(bytes.value == Self.body)
    }

    // MARK: Uploads

    /// A stream of the client's that says at its last byte that it has ended, and delivers no events.
    private final class Ending: InputStream {
        private var rest = 300_000
        private var isOpened = false

        override func open() { isOpened = true }
        override func close() {}
        override var streamStatus: Status { rest == 0 ? .atEnd : isOpened ? .open : .notOpen }
        override var hasBytesAvailable: Bool { rest > 0 }
        override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
            let count = min(len, rest, 50_000)
            buffer.initialize(repeating: 97, count: count)
            rest -= count
            return count
        }
    }

    @Test(arguments: [nil, 300_000])
    func `a subclass that ends with its last byte is uploaded, and the upload ends`(length: Int?) throws {
        let server = try TestServer { peer, _ in
            let isChunked = peer.readHead()?.contains("chunked") == true
            var (count, last) = (0, [UInt8]())
            while isChunked ? last != Array("\r\n0\r\n\r\n".utf8) : count < 300_000 {
                guard let bytes = peer.receive(upTo: 65_536), !bytes.isEmpty else { return }
                count += bytes.count
                last = (last + bytes).suffix(7)
            }
            peer.send(response(body: "ok"))
        }
        let body = HTTPSource.stream(Ending(), length: length)
        #expect(HTTPSession().run(HTTPRequest(server.url, method: .post), body: body).body == "ok")
    }

    @Test(arguments: [HTTPRequest.Method.post, .put])
    func `no more bytes of a stream are sent than were announced, and once`(method: HTTPRequest.Method) throws
    {
        let next = Answer<String?>()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            _ = peer.receive(5)
            peer.send(response())
            next.give(peer.readHead())
            peer.send(response())
        }
        let session = HTTPSession()
        let body = HTTPSource.stream(InputStream(data: Array("helloSMUGGLED".utf8)), length: 5)
        let request = HTTPRequest(server.url, method: method)
        #expect(session.run(request, body: body).kind == nil)
        #expect(session.run(server.url).kind == nil)
        #expect(next.wait()?.hasPrefix("GET / HTTP/1.1\r\n") == true)
        #expect(session.run(request, body: body).kind == .bodyNotRepeatable)
    }

    // MARK: Files

    /// Answers a body that is sent in chunks, and calls `begin` before it is read.
    private static func receivingChunks(
        _ body: Answer<[UInt8]>, begin: @escaping @Sendable () -> Void = {}
    ) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead()?.contains("Transfer-Encoding: chunked") == true else {
                return body.give([])
            }
            begin()
            var bytes: [UInt8] = []
            while !bytes.suffix(5).elementsEqual("0\r\n\r\n".utf8) {
                guard let more = peer.receive(upTo: 1), !more.isEmpty else { break }
                bytes += more
            }
            body.give(Array(bytes.split(separator: 13)[1].dropFirst()))
            peer.send(response())
        }
    }

    private static func write(_ text: String, to fifo: FilePath) {
        let writer = try? FileDescriptor.open(fifo, .writeOnly)
        _ = try? writer?.writeAll(text.utf8)
        try? writer?.close()
    }

    @Test(arguments: ["/proc/sys/kernel/ostype", "/sys/devices/system/cpu/online"])
    func `a file whose length only reading shows is sent as it is read`(path: String) throws {
        guard let content = content(of: path) else { return }
        let body = Answer<[UInt8]>()
        let server = try Self.receivingChunks(body)
        let request = HTTPRequest(server.url, method: .put)
        #expect(HTTPSession().run(request, body: .file(FilePath(path))).kind == nil)
        #expect(body.wait().elementsEqual(content.prefix { $0 != 13 }))
    }

    @Test func `a FIFO is sent as it is read, and does not block the loop before it has a writer`() throws {
        let (folder, body) = (TemporaryFolder(), Answer<[UInt8]>())
        let fifo = folder.fifo()
        let server = try Self.receivingChunks(body) { Self.write("hello", to: fifo) }
        let request = HTTPRequest(server.url, method: .post)
        #expect(HTTPSession().run(request, body: .file(fifo)).kind == nil)
        #expect(body.wait() == Array("hello".utf8))
    }

    @Test func `a request whose body was a FIFO is not sent again`() throws {
        let (folder, heads) = (TemporaryFolder(), Trace())
        let fifo = folder.fifo()
        let server = try TestServer { peer, _ in
            guard let head = peer.readHead() else { return }
            heads(head)
            Self.write("hello", to: fifo)
        }
        let session = HTTPSession { ($0.retries, $0.retryDelay) = (1, .zero) }
        let outcome = session.run(HTTPRequest(server.url, method: .put), body: .file(fifo))
        #expect(outcome.kind == .connectionLost)
        #expect(heads.all.count == 1)
    }

    @Test func `an empty file is a body of no bytes, and a folder is none`() throws {
        let (folder, server) = (TemporaryFolder(), try TestServer.responding { _, _ in response() })
        let (file, session) = (try folder.file([]), HTTPSession())
        #expect(session.run(HTTPRequest(server.url, method: .put), body: .file(file)).kind == nil)
        let kind = session.run(HTTPRequest(server.url, method: .put), body: .file(folder.path)).kind
        #expect(kind == .read(IOError(.open, folder.path.string, .isDirectory)))
        #expect(server.requests.all.map { $0.contains("Content-Length: 0\r\n") } == [true])
    }

    @Test func `bytes that are appended to a file while it is sent are not sent`() throws {
        let (folder, next, size) = (TemporaryFolder(), Answer<String?>(), 16_778_000)
        let path = try folder.file([UInt8](repeating: 97, count: size))
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            let file = try? FileDescriptor.open(path, .writeOnly, options: .append)
            _ = try? file?.writeAll([UInt8](repeating: 98, count: 1 << 20))
            try? file?.close()
            #expect(peer.receive(size).count == size)
            peer.send(response())
            next.give(peer.readHead())
            peer.send(response())
        }
        let session = HTTPSession()
        #expect(session.run(HTTPRequest(server.url, method: .put), body: .file(path)).kind == nil)
        #expect(session.run(server.url).kind == nil)
        #expect(next.wait()?.hasPrefix("GET / HTTP/1.1\r\n") == true)
    }
}
