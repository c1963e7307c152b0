import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What streams deliver once TLS protects them.
@Suite(.runLoop) struct TrafficTests {
    @Test func `tickets make no event, and the loop sleeps`() throws {
        let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
        let recorder = Recorder()
        pair.client.input.delegate = recorder
        pair.client.input.schedule(in: .current, forMode: .default)
        for _ in 0..<5 { RunLoop.current.run(in: .default, until: .distantPast) }
        #expect(!pair.client.input.hasBytesAvailable)
        #expect(recorder.count(.hasBytesAvailable) == 0)
        #expect(RunLoop.current.passesInAWhile() < 10)
        pair.server.output.writeAll([1])
        RunLoop.current.serve { recorder.count(.hasBytesAvailable) > 0 }
        #expect(pair.client.input.read(exactly: 1) == [1])
        pair.close()
    }

    @Test(arguments: [1, 100, 16_384, 100_000])
    func `a delegate gets every byte of every record, whatever it reads at once`(size: Int) async throws {
        try await onItsOwnThread {
            let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
            let recorder = Recorder()
            let expected = pattern(size < 1000 ? 5000 : 500_000)
            var buffer = [UInt8](repeating: 0, count: size)
            recorder.onEvent = { stream, event in
                guard event == .hasBytesAvailable else { return }
                let count = (stream as! InputStream).read(&buffer, maxLength: size)
                recorder.bytes += buffer.prefix(max(0, count))
            }
            pair.client.input.delegate = recorder
            pair.client.input.schedule(in: .current, forMode: .default)
            let server = Carrier(pair.server)
            let writer = try JoinableThread {
                server.value.output.writeAll(expected)
                try? server.value.output.shutDown()
            }
            RunLoop.current.serve { recorder.count(.endEncountered) > 0 }
            #expect(recorder.bytes == expected)
            writer.join()
            pair.close()
        }
    }

    @Test func `a delegate that writes as there is room sends everything before close`() async throws {
        try await onItsOwnThread {
            let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
            let (server, answer) = (Carrier(pair.server), Answer<[UInt8]>())
            let reader = try JoinableThread { answer.give(server.value.input.readToEnd()) }
            let (expected, recorder) = (pattern(4_000_000), Recorder())
            var rest = expected[...]
            recorder.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                let piece = Array(rest.prefix(50_000))
                rest = rest.dropFirst(max(0, (stream as! OutputStream).write(piece, maxLength: piece.count)))
                if rest.isEmpty { pair.client.close() }
            }
            pair.client.output.delegate = recorder
            pair.client.output.schedule(in: .current, forMode: .default)
            RunLoop.current.serve { rest.isEmpty }
            reader.join()
            #expect(answer.wait() == expected)
            #expect(pair.server.input.streamStatus == .atEnd)
            pair.close()
        }
    }

    /// In a process of its own: the memory of other tests does not count.
    @Test func `both directions carry a gigabyte at once, unchanged, in little memory`() async {
        await #expect(processExitsWith: .success) {
            let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
            let size = 1 << 30
            let ends = Carrier([pair.client, pair.server])
            let intact = Shared([false, false])
            _ = pattern(1)
            let before = try peakResidentSize()
            let threads = try (0..<4).map { number in
                try JoinableThread {
                    let end = ends.value[number / 2]
                    if number % 2 == 0 { return end.output.write(pattern: size) }
                    let isIntact = end.input.read(pattern: size)
                    intact.update { $0[number / 2] = isIntact }
                }
            }
            for thread in threads { thread.join() }
            #expect(intact.value == [true, true])
            // A sanitizer keeps memory that was freed.
            #expect(try peakResidentSize() - before < size / 2)
            pair.close()
        }
    }

    @Test func `a peer that does not read makes the writer wait, and not the memory grow`() throws {
        let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
        let (output, piece) = (pair.client.output, pattern(65_536))
        var count = 0
        // The kernel's own buffers take some megabytes.
        while output.hasSpaceAvailable, count < 64 << 20 {
            count += max(0, output.write(piece, maxLength: piece.count))
        }
        #expect(count < 32 << 20)
        let (server, answer) = (Carrier(pair.server), Answer<Int>())
        let reader = try JoinableThread { answer.give(server.value.input.readToEnd().count) }
        pair.client.close()
        reader.join()
        #expect(answer.wait() == count)
        pair.close()
    }

    @Test func `a connection that ends without close_notify is truncated`() throws {
        let (ownNumber, other) = try connectedSockets()
        let server = TLSPair.end(ownNumber)
        try server.input.startTLS(.testServer())
        for stream in server.streams { stream.open() }
        let client = TLSPair.end(other)
        try client.input.startTLS(.testClient())
        for stream in client.streams { stream.open() }
        client.output.writeAll([1, 2, 3])
        #expect(server.input.read(exactly: 3) == [1, 2, 3])
        // A FIN of the socket below TLS.
        shutdown(other, CInt(SHUT_WR))
        #expect(server.input.read(exactly: 1).isEmpty)
        #expect(server.error?.reason == .truncated)
        #expect(server.output.streamError as? TLSError == server.error)
        #expect(server.error?.description.contains("close_notify") == true)
        for end in [client, server] { end.close() }
    }

    @Test func `a stream without TLS can get it after it was used`() throws {
        let (first, second) = try connectedSockets()
        let (client, server) = (TLSPair.end(first), TLSPair.end(second))
        for stream in client.streams + server.streams { stream.open() }
        client.output.writeAll(Array("STARTTLS\r\n".utf8))
        #expect(server.input.read(exactly: 10).count == 10)
        server.output.writeAll(Array("220 ready\r\n".utf8))
        try server.input.startTLS(.testServer())
        #expect(client.input.read(exactly: 11).count == 11)
        try client.output.startTLS(.testClient())
        client.output.writeAll([1, 2])
        #expect(server.input.read(exactly: 2) == [1, 2])
        server.output.writeAll([3])
        #expect(client.input.read(exactly: 1) == [3])
        #expect(client.input.tlsSession != nil && server.input.tlsSession != nil)
        #expect(throws: TLSError.self) { try client.input.startTLS(.testClient()) }
        for end in [client, server] { end.close() }
    }

    @Test(arguments: [TLSSettings.Version.tls12, .tls13])
    func `a session is resumed, unless the settings forbid it`(version: TLSSettings.Version) throws {
        for resumes in [true, false] {
            let client = TLSSettings.testClient {
                $0.maximumVersion = version
                $0.resumesSessions = resumes
                // Settings of their own for each test, and so sessions.
                $0.applicationProtocols = ["resumption-\(version.rawValue)"]
            }
            let server = try TLSSettings.testServer { $0.applicationProtocols = client.applicationProtocols }
            let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
            var results: [Bool] = []
            for _ in 0..<3 {
                let pair = try TLSPair(client: client, server: server, at: listening)
                pair.server.output.writeAll([1])
                #expect(pair.client.input.read(exactly: 1) == [1])
                let session = try #require(pair.server.input.tlsSession)
                results.append(session.isResumed)
                #expect(session.serverName == "localhost")
                pair.close()
            }
            #expect(results == (resumes ? [false, true, true] : [false, false, false]))
        }
    }

    @Test func `a peer that does not speak TLS is an error`() throws {
        for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail.example.org ESMTP\r\n"] {
            let (number, other) = try connectedSockets()
            let (peer, client) = (SocketPeer(other), TLSPair.end(number))
            try client.input.startTLS(.testClient())
            for stream in client.streams { stream.open() }
            peer.send(Array(answer.utf8))
            waitUntil { client.input.streamStatus != .opening }
            #expect(client.error?.reason == .notTLS)
            client.close()
        }
        let (number, other) = try connectedSockets()
        let (peer, server) = (SocketPeer(other), TLSPair.end(number))
        try server.input.startTLS(.testServer())
        for stream in server.streams { stream.open() }
        peer.send(Array("GET / HTTP/1.1\r\n\r\n".utf8))
        waitUntil { server.input.streamStatus != .opening }
        #expect(server.error?.reason == .notTLS)
        server.close()
    }

    @Test func `a changed record is an error after the bytes before it`() throws {
        let (first, relayClient) = try connectedSockets()
        let (second, relayServer) = try connectedSockets()
        let (client, server) = (TLSPair.end(first), TLSPair.end(second))
        try client.input.startTLS(.testClient { $0.maximumVersion = .tls12 })
        try server.input.startTLS(.testServer())
        let relay = try Relay(SocketPeer(relayClient), SocketPeer(relayServer))
        for stream in client.streams + server.streams { stream.open() }
        waitUntil { (client.streams + server.streams).allSatisfy { $0.streamStatus == .open } }
        server.output.writeAll([1, 2, 3])
        #expect(client.input.read(exactly: 3) == [1, 2, 3])
        relay.corrupts.value = true
        server.output.writeAll([4])
        #expect(client.input.read(exactly: 1).isEmpty)
        guard case .protocolViolation = client.error?.reason else {
            Issue.record("\(client.error.map { "\($0)" } ?? "no error")")
            return
        }
        for end in [client, server] { end.close() }
        relay.join()
    }

    @Test func `errors name the peer and the reason`() throws {
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let port = try #require(try listening.localAddress.port)
        let (input, output) = Stream.connection(toHost: "localhost", port: port)
        try input.startTLS(.testClient(nil))
        for stream in [input, output] as [Stream] { stream.open() }
        let server = TLSPair.end(try listening.acceptNumber())
        try server.input.startTLS(.testServer(TestCertificates.expired))
        for stream in server.streams { stream.open() }
        waitUntil { input.streamStatus == .error && output.streamStatus == .error }
        #expect(
            "\(try #require(input.streamError))" == "TLS with localhost:\(port): the certificate has expired")
        server.close()
    }
}

/// Passes the bytes of two connections on.
private final class Relay {
    let corrupts = Shared(false)
    private let threads: [JoinableThread]

    init(_ left: SocketPeer, _ right: SocketPeer) throws {
        let corrupts = corrupts
        threads = try [(left, right), (right, left)].map { from, to in
            try JoinableThread {
                while var bytes = from.receive(upTo: 65_536), !bytes.isEmpty {
                    if corrupts.value { bytes[bytes.count - 1] ^= 1 }
                    to.send(bytes)
                }
                to.shutDown()
            }
        }
    }

    func join() { for thread in threads { thread.join() } }
}

extension RunLoop {
    /// The number of passes in 20 ms in which nothing should wake the loop.
    fileprivate func passesInAWhile() -> Int {
        var passes = 0
        let observer = Observer(for: .beforeTimers) { _, _ in passes += 1 }
        add(observer, forMode: .default)
        run(in: .default, until: .now.advanced(by: .milliseconds(20)))
        observer.invalidate()
        return passes
    }
}

/// The most memory of the process that was resident, in bytes: VmHWM of proc_pid_status(5).
private func peakResidentSize() throws -> Int {
    let status = try #require(content(of: "/proc/self/status"))
    let lines = String(decoding: status, as: UTF8.self).split(separator: "\n")
    let line = try #require(lines.first { $0.hasPrefix("VmHWM:") })
    return try #require(Int(line.split(separator: " ")[1])) << 10
}
