import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Bodies that are read from a stream, and written to one.
@Suite(.runLoop) struct StreamTests {
    private static let body = (0..<2_000_000).map { UInt8(truncatingIfNeeded: $0 >> 3) }

    private static func server() throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n")
            peer.send(body)
            peer.waitForEnd()
        }
    }

    private static func readToEnd(_ stream: InputStream) -> [UInt8] {
        var bytes: [UInt8] = []
        while case let piece = stream.read(upTo: 10_000), !piece.isEmpty { bytes += piece }
        return bytes
    }

    @Test func `a body is read from a stream, at the reader's speed`() async throws {
        let (server, thread) = (try Self.server(), try RunLoopThread(name: "network"))
        let outcome = Answer<Outcome>()
        try await onItsOwnThread {
            let session = HTTPSession(on: thread.runLoop)
            let (stream, _) = session.startReading(HTTPRequest(server.url), bufferSize: 4096) {
                outcome.give($0)
            }
            stream.open()
            #expect(Self.readToEnd(stream) == Self.body)
            #expect(stream.streamStatus == .atEnd)
            #expect(outcome.wait().kind == nil)
            thread.stop()
        }
    }

    @Test func `a transfer that fails makes its stream fail with the same error`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        }
        let thread = try RunLoopThread(name: "network")
        try await onItsOwnThread {
            let (stream, _) = HTTPSession(on: thread.runLoop).startReading(HTTPRequest(server.url))
            stream.open()
            #expect(Self.readToEnd(stream) == Array("abc".utf8))
            #expect(stream.streamStatus == .error)
            #expect((stream.streamError as? HTTPError)?.kind == .truncated)
            thread.stop()
        }
    }

    @Test func `a failed transfer is an event of its stream`() async throws {
        let server = try TestServer { peer, _ in _ = peer.readHead() }
        let trace = Trace()
        try await onItsOwnThread {
            let loop = RunLoop.current
            let session = HTTPSession()
            let (stream, _) = session.startReading(HTTPRequest(server.url))
            let delegate = Listener { stream, event in
                if event == .errorOccurred { trace("\((stream.streamError as? HTTPError)?.kind as Any)") }
                loop.stop()
            }
            stream.delegate = delegate
            stream.schedule(in: loop, forMode: .default)
            stream.open()
            loop.run { trace.all.isEmpty }
        }
        #expect(trace.all.count == 1)
        #expect(trace.all.first?.contains("connectionLost") == true)
    }

    private final class Listener: StreamDelegate {
        private let body: (Reactor.Stream, Reactor.Stream.Event) -> Void

        init(_ body: @escaping (Reactor.Stream, Reactor.Stream.Event) -> Void) { self.body = body }

        func stream(_ stream: Reactor.Stream, handle event: Reactor.Stream.Event) { body(stream, event) }
    }

    @Test func `closing the stream cancels its transfer`() async throws {
        let (server, thread) = (try Self.server(), try RunLoopThread(name: "network"))
        let outcome = Answer<Outcome>()
        try await onItsOwnThread {
            let session = HTTPSession(on: thread.runLoop)
            let (stream, _) = session.startReading(HTTPRequest(server.url), bufferSize: 4096) {
                outcome.give($0)
            }
            stream.open()
            #expect(stream.read(upTo: 10).count == 10)
            stream.close()
            #expect(outcome.wait().kind == .cancelled)
            thread.stop()
        }
    }

    @Test func `a body is written to a stream, at the stream's speed`() async throws {
        let server = try Self.server()
        let (reader, writeEnd) = try SocketPeer.pair()
        let received = Answer<[UInt8]>()
        _ = try ReactorTestSupport.JoinableThread(name: "reader") {
            received.give(reader.receiveToEnd(by: 10_000) ?? [])
        }
        try await onItsOwnThread {
            let output = OutputStream(descriptor: writeEnd, closeWhenDone: true)
            #expect(HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).kind == nil)
            #expect(received.wait() == Self.body)
        }
    }

    @Test func `a stream that fails ends its transfer`() async throws {
        let server = try Self.server()
        let outcome = try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(server.url), to: .stream(OutputStream(path: "/dev/full")))
        }
        guard case .write(let error) = outcome.kind else { return #expect(outcome.kind != nil) }
        #expect(error.errno == .noSpace)
    }

    /// Sends the beginning of a body in one segment with the end of the connection.
    private static func cutting() throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send(Array("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".utf8) + body.prefix(15_000))
        }
    }

    @Test func `what was received before a failure is written to the stream`() async throws {
        let (server, (reader, writeEnd)) = (try Self.cutting(), try SocketPeer.pair())
        SocketPeer.narrow(writeEnd.rawValue)
        let received = Answer<[UInt8]>()
        _ = try ReactorTestSupport.JoinableThread(name: "reader") {
            received.give(reader.receiveToEnd(by: 1000) ?? [])
        }
        try await onItsOwnThread {
            let output = OutputStream(descriptor: writeEnd, closeWhenDone: true)
            #expect(HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).kind == .truncated)
            #expect(received.wait() == Array(Self.body.prefix(15_000)))
        }
    }

    @Test func `what was received before a failure is read from the stream, and then the error`() async throws
    {
        let (server, thread) = (try Self.cutting(), try RunLoopThread(name: "network"))
        try await onItsOwnThread {
            let session = HTTPSession(on: thread.runLoop)
            let (stream, _) = session.startReading(HTTPRequest(server.url), bufferSize: 1000)
            stream.open()
            var bytes: [UInt8] = []
            while case let piece = stream.read(upTo: 4096), !piece.isEmpty { bytes += piece }
            #expect(bytes == Array(Self.body.prefix(15_000)))
            #expect((stream.streamError as? HTTPError)?.kind == .truncated)
            thread.stop()
        }
    }

    @Test func `a transfer that drains can be cancelled`() async throws {
        let (server, thread) = (try Self.cutting(), try RunLoopThread(name: "network"))
        let outcome = Answer<Outcome>()
        try await onItsOwnThread {
            let session = HTTPSession(on: thread.runLoop)
            let (stream, transfer) = session.startReading(HTTPRequest(server.url), bufferSize: 1000) {
                outcome.give($0)
            }
            stream.open()
            #expect(stream.read(upTo: 1).count == 1)
            transfer.cancel()
            #expect(outcome.wait().kind == .cancelled)
            thread.stop()
        }
    }

    /// A stream of the client's, which runs the loop in each method.
    private final class Subclass: OutputStream {
        let bytes = Shared<[UInt8]>([])

        override func open() {
            super.open()
            RunLoop.current.run(until: .now)
        }

        override func close() {
            RunLoop.current.run(until: .now)
            super.close()
        }

        override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
            super.schedule(in: aRunLoop, forMode: mode)
            RunLoop.current.run(until: .now)
        }

        override var hasSpaceAvailable: Bool { true }

        override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
            bytes.update { $0 += UnsafeBufferPointer(start: buffer, count: min(len, 30_000)) }
            RunLoop.current.run(until: .now)
            return super.write(buffer, maxLength: min(len, 30_000))
        }
    }

    @Test func `a subclass of a stream may run the loop in each of its methods`() async throws {
        let server = try Self.server()
        try await onItsOwnThread {
            let output = Subclass()
            let bytes = output.bytes
            #expect(HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).kind == nil)
            #expect(bytes.value == Self.body)
        }
    }

    @Test func `a stream may run the loop in each of its methods while other transfers go on`() async throws {
        let server = try TestServer { peer, number in
            _ = peer.readHead()
            if number == 0 {
                peer.send("HTTP/1.1 200 OK\r\n\r\n")
                while peer.send([UInt8](repeating: 97, count: 65_536)) {}
            } else {
                peer.send(response(body: String(decoding: peer.receive(20_000), as: UTF8.self)))
            }
        }
        try await onItsOwnThread {
            let (session, loop, isDone) = (HTTPSession(), RunLoop.current, Shared(false))
            let handler = HTTPDestination.handler { event in if case .bytes = event { loop.stop() } }
            let endless = session.start(HTTPRequest(server.url), to: handler) { _ in
                isDone.value = true
                loop.stop()
            }
            _ = loop.run(in: .default)
            let sent = [UInt8](repeating: 98, count: 20_000)
            let request = HTTPRequest(
                server.url, method: "PUT", body: .stream(Source(data: sent), length: 20_000))
            let output = Subclass()
            let bytes = output.bytes
            #expect(session.run(request, to: .stream(output)).kind == nil)
            #expect(bytes.value == sent)
            endless.cancel()
            loop.run { !isDone.value }
        }
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

    @Test func `a subclass that accepts a part of each piece needs no events while it has room`() async throws
    {
        let server = try Self.server()
        try await onItsOwnThread {
            let output = Silent()
            let bytes = output.bytes
            #expect(HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).kind == nil)
            #expect(bytes.value == Self.body)
        }
    }

    /// A stream of the client's, which runs the loop in each method.
    private final class Source: InputStream {
        override func open() {
            super.open()
            RunLoop.current.run(until: .now)
        }

        override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
            super.schedule(in: aRunLoop, forMode: mode)
            RunLoop.current.run(until: .now)
        }

        override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
            RunLoop.current.run(until: .now)
            return super.read(buffer, maxLength: min(len, 10_000))
        }

        override func close() {
            RunLoop.current.run(until: .now)
            super.close()
        }
    }

    @Test(arguments: ["200 OK", "307 Moved\r\nLocation: /", "close"])
    func `a subclass that is uploaded may run the loop in each of its methods`(status: String) async throws {
        let received = Shared(0)
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            if status == "close" { return }
            let count = peer.receive(Self.body.count).count
            received.update { $0 = max($0, count) }  // a redirect may have made another connection
            peer.send(response(status))
        }
        try await onItsOwnThread {
            let body = HTTPRequest.Body.stream(Source(data: Self.body), length: Self.body.count)
            let outcome = HTTPSession().run(HTTPRequest(server.url, method: "PUT", body: body))
            switch status.prefix(3) {
            case "200": #expect(outcome.kind == nil)
            case "307": #expect(outcome.kind == .bodyNotRepeatable)
            default: #expect(outcome.kind == .connectionLost)
            }
        }
        if status != "close" { #expect(received.value == Self.body.count) }
    }

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
    func `a subclass that ends with its last byte is uploaded, and the upload ends`(length: Int?) async throws
    {
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
        let outcome = try await onItsOwnThread {
            let session = HTTPSession { $0.totalTimeout = .seconds(10) }
            let body = HTTPRequest.Body.stream(Ending(), length: length)
            return session.run(HTTPRequest(server.url, method: "POST", body: body))
        }
        #expect(outcome.body == "ok")
    }

    /// Answers uploads of `count` bytes. Returns the next head on the connection.
    private static func receiving(
        _ count: Int, _ next: Answer<String?>, begin: @escaping @Sendable () -> Void = {}
    ) throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            begin()
            #expect(peer.receive(count).count == count)
            peer.send(response())
            next.give(peer.readHead())
            peer.send(response())
        }
    }

    @Test(arguments: ["POST", "PUT"])
    func `no more bytes of a stream are sent than were announced`(method: String) async throws {
        let next = Answer<String?>()
        let server = try Self.receiving(5, next)
        try await onItsOwnThread {
            let session = HTTPSession()
            let body = HTTPRequest.Body.stream(InputStream(data: Array("helloSMUGGLED".utf8)), length: 5)
            #expect(session.run(HTTPRequest(server.url, method: method, body: body)).kind == nil)
            #expect(session.run(server.url).kind == nil)
            #expect(next.wait()?.hasPrefix("GET / HTTP/1.1\r\n") == true)
        }
    }

    @Test func `bytes that are appended to a file while it is sent are not sent`() async throws {
        let (folder, next, size) = (TemporaryFolder(), Answer<String?>(), 16_778_000)
        let path = try folder.file([UInt8](repeating: 97, count: size))
        let server = try Self.receiving(size, next) {
            let file = try? FileDescriptor.open(path, .writeOnly, options: .append)
            _ = try? file?.writeAll([UInt8](repeating: 98, count: 1 << 20))
            try? file?.close()
        }
        try await onItsOwnThread {
            let session = HTTPSession()
            #expect(session.run(HTTPRequest(server.url, method: "PUT", body: .file(path))).kind == nil)
            #expect(session.run(server.url).kind == nil)
            #expect(next.wait()?.hasPrefix("GET / HTTP/1.1\r\n") == true)
        }
    }

    @Test func `a stream that has been sent cannot be sent again`() async throws {
        let server = try TestServer.responding { _, _ in response() }
        try await onItsOwnThread {
            let body = HTTPRequest.Body.stream(InputStream(data: []))
            let request = HTTPRequest(server.url, method: "PUT", body: body)
            _ = HTTPSession().run(request)
            #expect(HTTPSession().run(request).kind == .bodyNotRepeatable)
        }
    }

    @Test func `a subclass may run the loop while its transfer fails`() async throws {
        let server = try Self.cutting()
        try await onItsOwnThread {
            let output = Subclass()
            let bytes = output.bytes
            #expect(HTTPSession().run(HTTPRequest(server.url), to: .stream(output)).kind == .truncated)
            #expect(bytes.value == Array(Self.body.prefix(15_000)))
            #expect(HTTPSession().run(HTTPRequest("http://"), to: .stream(Subclass())).kind == .invalidURL)
        }
    }
}
