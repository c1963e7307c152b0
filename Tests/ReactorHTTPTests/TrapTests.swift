import CReactorTestSupport
import Dispatch
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What libcurl's interface makes easy to get wrong.
@Suite(.runLoop) struct TrapTests {
    /// Counts bytes, and the most of them in one pass of the calling thread's loop.
    private final class PassCount: Sendable {
        let total = Shared(0)
        let most = Shared(0)
        private let inPass = Shared(0)

        init() {
            let observer = RunLoop.Observer(for: .beforeTimers) { [inPass] _, _ in inPass.value = 0 }
            RunLoop.current.add(observer, forMode: .default)
        }

        func note(_ bytes: [UInt8]) {
            total.update { $0 += bytes.count }
            inPass.update { $0 += bytes.count }
            most.update { [count = inPass.value] in $0 = max($0, count) }
        }
    }

    @Test func `a pass of the loop receives a bounded number of bytes`() throws {
        let (size, count) = (24 << 20, PassCount())
        let (server, session) = (try TestServer.sized(size), HTTPSession { $0.bytesInFlight = size })
        #expect(session.run(HTTPRequest(server.url), to: .pieces(count.note)).kind == nil)
        #expect(count.total.value == size && count.most.value <= 8 << 20)
    }

    @Test func `a pass of a loop that receives events delivers a bounded number of bytes`() throws {
        let (size, count, loop) = (12 << 20, PassCount(), RunLoop.current)
        let server = try TestServer.sized(size)
        let destination = HTTPDestination.pieces { bytes in
            count.note(bytes)
            if count.total.value == size { loop.stop() }
        }
        try withNetwork(.with { $0.bytesInFlight = 2 * size }) { session in
            let launch = session.launch(
                HTTPRequest(server.url), to: destination, delivery: .runLoop(loop, inModes: [.default]))
            // This loop has not run, so that nothing has been delivered.
            waitUntil { launch.transfer.progress.bytesReceived == size }
            loop.run { count.total.value < size }
        }
        #expect(count.most.value <= 4 << 20)
    }

    @Test func `a body that decodes to more than the consumer has room for arrives whole`() throws {
        let (bomb, count, largest) = (try bomb(megabytes: 20), Shared(0), Shared(0))
        let server = try Self.server(of: bomb, encoding: "gzip")
        let destination = HTTPDestination.pieces { bytes in
            count.update { $0 += bytes.count }
            largest.update { $0 = max($0, bytes.count) }
        }
        let session = HTTPSession { $0.bytesInFlight = 65_536 }
        #expect(session.run(HTTPRequest(server.url), to: destination).kind == nil)
        #expect(count.value == 20_000_000)
        #expect(largest.value <= 131_072)
    }

    @Test func `a body of which one read decodes to too much is too large`() throws {
        let server = try Self.server(of: bomb(megabytes: 70, "| gzip"), encoding: "gzip, gzip")
        let session = HTTPSession { $0.bytesInFlight = 65_536 }
        let outcome = session.run(HTTPRequest(server.url), to: .handler { _ in })
        #expect(outcome.kind == .bodyTooLarge(limit: 64 << 20))
    }

    private static func server(of body: [UInt8], encoding: String) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send(
                "HTTP/1.1 200 OK\r\nContent-Encoding: \(encoding)\r\nContent-Length: \(body.count)\r\n\r\n")
            peer.send(body)
            peer.waitForEnd()
        }
    }

    @Test(.enabled(if: Nginx.isAvailable)) func `a server that resets a TLS connection raises no signal`()
        throws
    {
        let server = try Nginx.shared.get()
        let session = HTTPSession {
            $0.trustRoots = server.certificate
            $0.versions = .http1
        }
        let body = HTTPSource.bytes([UInt8](repeating: 97, count: 12 << 20))
        for _ in 0..<2 {
            let outcome = session.run(HTTPRequest(server.secure + "/refused", method: .put), body: body)
            if case .success(let response) = outcome { #expect(response.status == 413) }
        }
    }

    // MARK: Processes of their own

    @Test func `running out of descriptors is an error with its errno`() async {
        await #expect(processExitsWith: .success) {
            let server = try TestServer.sized(5)
            try await onItsOwnThread {
                let session = HTTPSession()
                precondition(session.run(server.url).body == "xxxxx")
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let next = dup(0)
                close(next)
                let limits = [rlim_t(next), limit.rlim_cur]
                limit.rlim_cur = limits[0]
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let error = session.run("http://127.0.0.1:1/").error
                precondition(error?.kind == .connect && error?.errno == .tooManyOpenFiles)
                limit.rlim_cur = limits[1]  // the leak checker opens files
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            }
        }
    }

    /// With HTTP/2, libcurl names one transfer of a socket. The leak checker cannot work in a process that is refused calls.
    @Test(.enabled(if: Nginx.isAvailable && !isSanitized))
    func `all transfers of a connection that cannot be watched fail`() async {
        await #expect(processExitsWith: .success) {
            let server = try Nginx.shared.get()
            try await onItsOwnThread {
                let session = HTTPSession {
                    $0.trustRoots = server.certificate
                    $0.maxConnectionsPerHost = 1
                }
                precondition(session.run(server.secure + "/hello.txt").body == "hello\n")
                guard reactor_test_refuse_epoll_additions(false) else { return }
                let launches = (0..<5).map { _ in session.launch(server.secure + "/bytes.bin") }
                for launch in launches {
                    let error = launch.wait().error
                    precondition(error?.kind == .connect && error?.errno == .noMemory)
                }
            }
        }
    }

    /// libcurl's OpenSSL would free its memory at exit(3).
    @Test(.enabled(if: Nginx.isAvailable && !isSanitized), arguments: 0..<4)
    func `a process may exit while threads transfer over TLS`(round: Int) async {
        await #expect(processExitsWith: .success) {
            let server = try Nginx.shared.get()
            let begun = Countdown(20)
            for _ in 0..<4 {
                let thread = try RunLoopThread(name: "network")
                @Sendable func transfer() {
                    // A session of its own, so that each transfer makes a connection, and ends it.
                    let session = HTTPSession(
                        .with { $0.trustRoots = server.certificate }, on: thread.runLoop)
                    session.start(HTTPRequest(server.secure + "/hello.txt")) { _ in
                        begun.count()
                        transfer()
                    }
                }
                transfer()
            }
            begun.wait()
        }
    }

    @Test(arguments: ["length", "maxConnectionsPerHost", "buffer size", "HTTPBody"])
    func `a limit that cannot be, and a second iteration of a body, trap`(name: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [name = name as String] in
            switch name {
            case "length": _ = HTTPSource.stream(InputStream(data: []), length: -1)
            case "maxConnectionsPerHost": _ = HTTPSession { $0.maxConnectionsPerHost = 0 }
            case "buffer size":
                _ = HTTPSession().startReading(HTTPRequest("http://127.0.0.1:1/"), bufferSize: 0)
            default:
                let server = try TestServer.sized(5)
                try await withRunLoopThread(name: "network") { thread in
                    let session = HTTPSession(on: thread.runLoop)
                    let (_, body) = try await session.response(for: HTTPRequest(server.url))
                    for try await _ in body {}
                    for try await _ in body {}
                }
            }
        }
        #expect(result.message.contains(name))
    }

    // MARK: Memory

    @Test func `a body that arrives byte by byte takes no more memory than its bytes`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                for consumer in ["queue", "loop", "task"] { try TrapTests.receiveBytes(for: consumer) }
            }
        }
    }

    /// Receives 2000 bytes one by one while their consumer is busy, and then the rest of 20,000.
    private static func receiveBytes(for consumer: String) throws {
        let (gate, queue) = (Answer<Bool>(), DispatchQueue(label: "slow"))
        // A busy thread with the test's time would stop the clock.
        let client = try RunLoopThread(name: "client")
        queue.async { _ = gate.wait() }
        client.runLoop.perform { _ = gate.wait() }
        try withVirtualTime { time in
            let (server, session, loop) = (try PlayedServer(), HTTPSession(), RunLoop.current)
            let (received, isDone) = (Shared([Int]()), Shared(false))
            let request = HTTPRequest(server.url)
            let end = { @Sendable in
                loop.perform {
                    isDone.value = true
                    loop.stop()
                }
            }
            if consumer == "task" {
                Task {
                    let (_, body) = try await session.response(for: request)
                    try await onItsOwnThread { _ = gate.wait() }
                    for try await piece in body { received.update { $0.append(piece.count) } }
                    end()
                }
            } else {
                session.start(
                    request, to: .pieces { piece in received.update { $0.append(piece.count) } },
                    delivery: consumer == "queue" ? .queue(queue) : .runLoop(client.runLoop)
                ) { _ in end() }
            }
            let peer = try server.accept(time)
            var begin = 0
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n")
            for count in 1...2000 {
                peer.send([97])
                _ = loop.run(in: .default, returnAfterSourceHandled: true)
                if count == 10 { begin = memoryInUse }
            }
            precondition(memoryInUse - begin < 100_000, "\(consumer): \(memoryInUse - begin)")
            gate.give(true)
            peer.send([UInt8](repeating: 97, count: 18_000))
            loop.run { !isDone.value }
            client.stop()
            precondition(received.value.reduce(0, +) == 20_000 && received.value.count < 200, consumer)
        }
    }

    @Test func `what has been consumed of a compressed body takes no more memory`() async {
        await #expect(processExitsWith: .success) {
            let (bomb, begin) = (try bomb(megabytes: 40), memoryInUse)
            let (gate, count, queue) = (Answer<Bool>(), Shared(0), DispatchQueue(label: "consumer"))
            let server = try TestServer { peer, _ in
                guard peer.readHead() != nil else { return }
                peer.send(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: \(bomb.count)\r\n\r\n")
                // One read of libcurl, which decodes to 21 MB.
                peer.send(Array(bomb.prefix(20_480)))
                _ = gate.wait()
                peer.send(Array(bomb.dropFirst(20_480)))
                peer.waitForEnd()
            }
            try await onItsOwnThread {
                try withNetwork { session in
                    let destination = HTTPDestination.pieces { bytes in count.update { $0 += bytes.count } }
                    let launch = session.launch(
                        HTTPRequest(server.url), to: destination, delivery: .queue(queue))
                    count.wait { $0 > 20_000_000 ? () : nil }
                    // libcurl keeps a buffer until the last of these bytes has been taken.
                    waitUntil { memoryInUse - begin < 8 << 20 }
                    gate.give(true)
                    precondition(launch.wait().kind == nil)
                }
            }
            precondition(count.value == 40_000_000)
        }
    }

    // MARK: Names

    @Test func `a host's name is resolved`() throws {
        let server = try TestServer.sized(5)
        #expect(HTTPSession().run(server.url.replacing("127.0.0.1", with: "localhost")).body == "xxxxx")
        #expect(HTTPSession().run("http://name.invalid/").kind == .resolve)
    }

    @Test func `transfers end while the names of their hosts are still being resolved`() async {
        // The kernel never lets the process connect again.
        await #expect(processExitsWith: .success) {
            try onAThread {
                guard Gate.hold() else { return }
                let session = HTTPSession { $0.connectTimeout = nil }
                let cancelled = session.launch("http://cancelled.invalid/")
                let ending = HTTPSession()
                let ended = ending.launch("http://ended.invalid/")
                let timed = HTTPSession { $0.connectTimeout = .milliseconds(50) }
                    .launch("http://timed.invalid/")
                let thread = try JoinableThread(name: "ends") {
                    for _ in 0..<3 { Gate.waitForArrival() }
                    cancelled.transfer.cancel()
                    ending.invalidateAndCancel()
                }
                #expect(cancelled.wait().kind == .cancelled)
                #expect(ended.wait().kind == .sessionEnded)
                #expect(timed.wait().kind == .timedOut(.connect))
                Gate.open()
                thread.join()
            }
        }
    }
}

/// Holds threads in connect(2), with which getaddrinfo(3) asks its servers, until the test opens the gate.
private enum Gate {
    static let (arrivals, isOpen) = (try! socketPair(), try! socketPair())

    /// Begins to hold the calling thread and those that it starts. False if the kernel does not allow that.
    static func hold() -> Bool {
        _ = (arrivals, isOpen)
        signal(SIGSYS) { _ in
            Gate.put(Gate.arrivals.1)
            var gate = pollfd(fd: Gate.isOpen.0, events: Int16(POLLIN), revents: 0)
            poll(&gate, 1, -1)
        }
        return reactor_test_trap_connect()
    }

    static func waitForArrival() {
        var byte = UInt8(0)
        _ = read(arrivals.0, &byte, 1)
    }

    static func open() { put(isOpen.1) }

    private static func put(_ descriptor: CInt) {
        var byte = UInt8(0)
        _ = write(descriptor, &byte, 1)
    }
}

/// `megabytes` of zeros, compressed to a thousandth of them, and by what `pipe` adds.
private func bomb(megabytes: Int, _ pipe: String = "") throws -> [UInt8] {
    let folder = TemporaryFolder()
    let command = "head -c \(megabytes)000000 /dev/zero | gzip \(pipe) > \(folder.path("bomb"))"
    _ = try Child("/bin/sh", ["-c", command]).wait()
    return try #require(content(of: folder.path("bomb")))
}

/// How many bytes malloc(3) has given out.
private var memoryInUse: Int {
    let information = mallinfo2()
    return information.uordblks + information.hblkhd
}
