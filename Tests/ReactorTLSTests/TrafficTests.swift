import CReactorOpenSSL
import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

/// What streams deliver once TLS protects them.
@Suite(.runLoop) struct TrafficTests {
    @Test func `tickets make no event, and the loop sleeps`() throws {
        let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
        let (recorder, loop) = (Recorder(), RunLoop.current)
        pair.client.input.delegate = recorder
        pair.client.input.schedule(in: loop, forMode: .default)
        loop.servePending()
        #expect(!pair.client.input.hasBytesAvailable)
        #expect(recorder.count(.hasBytesAvailable) == 0)
        var passes = 0
        let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in passes += 1 }
        loop.add(observer, forMode: .default)
        loop.run(in: .default, until: .now.advanced(by: .milliseconds(20)))
        observer.invalidate()
        #expect(passes < 10)
        _ = pair.server.output.write([1])
        loop.serve { recorder.count(.hasBytesAvailable) > 0 }
        #expect(pair.client.input.read(exactly: 1) == [1])
    }

    @Test(arguments: [(1, Version.tls13), (100, .tls12), (16_384, .tls13), (100_000, .tls12)])
    func `a delegate gets every byte, and the end of one direction`(size: Int, version: Version) throws {
        let client = TLSSettings.testClient { $0.maximumVersion = version }
        let pair = try TLSPair(client: client, server: .testServer(), isTCP: true).opened()
        let (recorder, expected) = (
            Recorder(readingUpTo: size), pattern(size < 1000 ? 500 * (1 + size / 10) : 500_000)
        )
        pair.client.input.delegate = recorder
        pair.client.input.schedule(in: .current, forMode: .default)
        let writer = try JoinableThread { [server = Carrier(pair.server)] in
            _ = server.value.output.write(expected)
            try? server.value.output.shutDown()
        }
        RunLoop.current.serve { recorder.count(.endEncountered) > 0 }
        writer.join()
        #expect(recorder.bytes == expected)
        #expect(pair.client.input.streamStatus == .atEnd)
        _ = pair.client.output.write([1, 2, 3])
        #expect(pair.server.input.read(exactly: 3) == [1, 2, 3])
        pair.client.close()
        #expect(pair.server.input.readToEnd().isEmpty)
        #expect(pair.server.input.streamStatus == .atEnd)
    }

    @Test func `a delegate that writes as there is room sends everything before close`() throws {
        let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true).opened()
        let answer = Answer<[UInt8]>()
        let reader = try JoinableThread { [server = Carrier(pair.server)] in
            answer.give(server.value.input.readToEnd())
        }
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
    }

    /// In a process of its own: the memory of other tests does not count. A sanitizer's memory would.
    @Test(.enabled(if: !isSanitized))
    func `both directions carry many megabytes at once, unchanged, in little memory`() async {
        await #expect(processExitsWith: .success) {
            let pair = try TLSPair(client: .testClient(), server: .testServer(), isTCP: true)
            let (ends, block, isIntact) = (
                Carrier([pair.client, pair.server]), pattern(1 << 20), Shared(true)
            )
            let before = try peakResidentSize()
            let threads = try (0..<4).map { number in
                try JoinableThread {
                    let end = ends.value[number / 2]
                    for _ in 0..<24 {
                        if number % 2 == 0 {
                            _ = end.output.write(block)
                        } else if end.input.read(exactly: block.count) != block {
                            isIntact.value = false
                        }
                    }
                }
            }
            for thread in threads { thread.join() }
            let growth = try peakResidentSize() - before
            precondition(isIntact.value && growth < 24 << 20, "\(growth)")
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
        let answer = Answer<Int>()
        let reader = try JoinableThread { [server = Carrier(pair.server)] in
            answer.give(server.value.input.readToEnd().count)
        }
        pair.client.close()
        reader.join()
        #expect(answer.wait() == count)
    }

    @Test func `a connection that ends without close_notify is truncated`() throws {
        let (number, other) = try connectedSockets()
        let pair = TLSPair(try TLSEnd(other, .testClient()), try TLSEnd(number, .testServer()))
        _ = pair.client.output.write([1, 2, 3])
        #expect(pair.server.input.read(exactly: 3) == [1, 2, 3])
        // A FIN of the socket below TLS.
        shutdown(other, CInt(SHUT_WR))
        #expect(pair.server.input.read(exactly: 1).isEmpty)
        #expect(pair.server.error?.reason == .truncated)
        #expect(pair.server.output.streamError as? TLSError == pair.server.error)
    }

    @Test func `a stream without TLS can get it after it was used`() throws {
        let (first, second) = try connectedSockets()
        let (client, server) = (try TLSEnd(first), try TLSEnd(second))
        for end in [client, server] { end.open() }
        _ = client.output.write("STARTTLS\r\n")
        #expect(server.input.read(exactly: 10).count == 10)
        _ = server.output.write("220 ready\r\n")
        try server.input.beginTLS(.testServer())
        #expect(client.input.read(exactly: 11).count == 11)
        try client.output.beginTLS(.testClient())
        _ = client.output.write([1, 2])
        #expect(server.input.read(exactly: 2) == [1, 2])
        _ = server.output.write([3])
        #expect(client.input.read(exactly: 1) == [3])
        #expect(client.input.tlsSession != nil && server.input.tlsSession != nil)
    }

    @Test(arguments: [
        ("HTTP/1.1 400 Bad\r\n\r\n", false), ("220 ESMTP\r\n", false), ("GET / HTTP/1.1\r\n\r\n", true),
    ])
    func `a peer that does not speak TLS is an error`(text: String, isServer: Bool) throws {
        let (end, peer) = try TLSEnd.withPeer(isServer ? .testServer() : .testClient())
        peer.send(Array(text.utf8))
        #expect(end.settle().error?.reason == .notTLS)
    }

    @Test func `a changed record is an error after the bytes before it`() throws {
        let (client, peer) = try TLSEnd.withPeer(.testClient { $0.maximumVersion = .tls12 })
        let server = OpenSSLServer(peer, version: TLS1_2_VERSION)
        var records =
            server.records { SSL_write($0, pattern(3), 3) } + server.records { SSL_write($0, pattern(1), 1) }
        records[records.count - 1] ^= 1
        peer.send(records)
        #expect(client.input.read(exactly: 3) == pattern(3))
        #expect(client.input.read(exactly: 1).isEmpty)
        if case .protocolViolation? = client.error?.reason {} else { Issue.record("another error") }
    }
}
