import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Peers that are cut off, silent, many or hostile.
@Suite(.runLoop) struct RobustnessTests {
    typealias Version = TLSSettings.Version

    /// A client that makes a whole handshake each time.
    private static func client(_ version: Version) -> TLSSettings {
        .testClient {
            $0.maximumVersion = version
            $0.resumesSessions = false
        }
    }

    /// Sends 64 bytes in both directions of each pair, unless its handshake fails.
    private static func exchange(_ relayed: RelayedPairs) throws -> JoinableThread {
        let ends = Carrier(relayed.pairs.flatMap { [$0.server, $0.client] })
        return try JoinableThread { for end in ends.value { end.output.writeAll(pattern(64)) } }
    }

    /// The number of bytes that one side sends up to the end of its 64 bytes, or a few less: the sizes of
    /// signatures differ.
    private static func byteCount(_ client: TLSSettings, _ server: TLSSettings, ofServer: Bool) throws -> Int
    {
        let relayed = try RelayedPairs(client, server, limits: [.max], ofServer: ofServer)
        let writing = try exchange(relayed)
        let ends = Carrier([relayed.pairs[0].client, relayed.pairs[0].server])
        let closing = try JoinableThread {
            writing.join()
            for end in ends.value { #expect(end.input.read(exactly: 64) == pattern(64)) }
            for end in ends.value { end.close() }
        }
        relayed.run()
        closing.join()
        let announcedEnd = 31
        return (ofServer ? relayed.counts.servers : relayed.counts.clients) - announcedEnd - 8
    }

    @Test(arguments: [(Version.tls12, 5), (.tls13, 1)], [true, false])
    func `a connection that is cut at any byte fails, and never ends as if it were complete`(
        versionAndStep: (Version, Int), ofServer: Bool
    ) throws {
        let (client, server) = (Self.client(versionAndStep.0), try TLSSettings.testServer())
        let count = try Self.byteCount(client, server, ofServer: ofServer)
        #expect(count > 300)
        let limits = Array(stride(from: 0, to: count, by: versionAndStep.1))
        for start in stride(from: 0, to: limits.count, by: 50) {
            let some = limits[start..<min(start + 50, limits.count)]
            let relayed = try RelayedPairs(client, server, limits: some, ofServer: ofServer)
            let writing = try Self.exchange(relayed)
            relayed.run()
            writing.join()
            for (limit, pair) in zip(some, relayed.pairs) {
                for end in [pair.client, pair.server] {
                    _ = end.input.readToEnd()
                    #expect(end.input.streamStatus == .error, "after \(limit) bytes")
                    end.close()
                }
            }
        }
    }

    @Test(arguments: [Version.tls12, .tls13], [true, false])
    func `a peer that stalls in any flight of the handshake times out`(
        version: Version, ofServer: Bool
    ) throws {
        let (client, server) = (Self.client(version), try TLSSettings.testServer())
        let count = try Self.byteCount(client, server, ofServer: ofServer)
        // The last one is in Finished. A server of TLS 1.3 sends tickets after it, which nothing waits for.
        let limits = [0, 3, count / 4, count / 2] + (ofServer && version == .tls13 ? [] : [count - 105])
        let relayed = try RelayedPairs(client, server, limits: limits, ofServer: ofServer, .stall) {
            $0.connectTimeout = .milliseconds(50)
        }
        relayed.run {
            relayed.pairs.allSatisfy { pair in
                [pair.client, pair.server].allSatisfy { $0.input.streamStatus != .opening }
            }
        }
        for (limit, pair) in zip(limits, relayed.pairs) {
            let ends = [pair.client, pair.server]
            #expect(ends.contains { $0.input.streamErrno == .timedOut }, "after \(limit) bytes")
            for end in ends {
                #expect(end.input.streamStatus == .open || end.input.streamErrno == .timedOut)
                end.close()
            }
        }
    }

    @Test func `a hello with any byte changed fails or is answered`() throws {
        let (settings, hello) = (try TLSSettings.testServer(), OpenSSLClient.hello)
        #expect(hello.count > 100)
        // The peers' sockets stay open: the kernel would reset one with unread bytes.
        let pairs = try hello.indices.map { index in
            let (number, other) = try socketPair()
            let (server, peer) = (TLSPair.end(number), SocketPeer(other))
            try server.input.startTLS(settings)
            for stream in server.streams { stream.open() }
            var bytes = hello
            bytes[index] ^= index % 2 == 0 ? 0x01 : 0xFF
            peer.send(bytes)
            peer.shutDown()
            return (server, peer)
        }
        for (server, _) in pairs {
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamError is TLSError)
            server.close()
        }
    }

    @Test func `a flood of handshakes that go no further leaves room for a client`() async throws {
        try await onItsOwnThread {
            var connections: [ObjectIdentifier: Listener.Connection] = [:]
            let recorder = Recorder()
            recorder.onEvent = { stream, event in
                if event == .hasSpaceAvailable { (stream as! OutputStream).writeAll([7]) }
                guard event == .hasSpaceAvailable || event == .errorOccurred,
                    let connection = connections.removeValue(forKey: ObjectIdentifier(stream))
                else { return }
                for stream in [connection.input, connection.output] as [Stream] { stream.close() }
            }
            let listener = try Listener(.ipv4Loopback(port: 0), tls: .testServer()) { _, connection in
                connections[ObjectIdentifier(connection.output)] = connection
                connection.output.delegate = recorder
                connection.output.schedule(in: .current, forMode: .default)
                for stream in [connection.input, connection.output] as [Stream] { stream.open() }
            } faults: {
                Issue.record($1)
            }
            try RunLoop.current.add(listener, forMode: .default)
            let (address, answer) = (listener.localAddress, Shared<[UInt8]>([]))
            let clients = try JoinableThread {
                let hello = OpenSSLClient.hello
                for round in 0..<300 {
                    guard let peer = try? SocketPeer(connectedTo: address) else { continue }
                    peer.send(round % 3 == 0 ? Array(hello.dropLast()) : hello)
                    if round % 2 == 0 { peer.reset() }
                }
                let (input, output) = Stream.connection(to: address)
                guard (try? input.startTLS(.testClient())) != nil else { return }
                for stream in [input, output] as [Stream] { stream.open() }
                answer.value = input.readToEnd()
                for stream in [input, output] as [Stream] { stream.close() }
            }
            while answer.value.isEmpty {
                _ = RunLoop.current.run(in: .default, until: .now.advanced(by: .milliseconds(5)))
            }
            #expect(answer.value == [7])
            clients.join()
            for connection in connections.values {
                for stream in [connection.input, connection.output] as [Stream] { stream.close() }
            }
            listener.close()
        }
    }

    @Test func `whatever a client says for a hello, the server fails or waits`() throws {
        var generator = SeededGenerator(seed: 7)
        let settings = try TLSSettings.testServer()
        for round in 0..<100 {
            let (number, other) = try socketPair()
            let (server, peer) = (TLSPair.end(number), SocketPeer(other))
            try server.input.startTLS(settings)
            for stream in server.streams { stream.open() }
            var bytes = (0..<Int.random(in: 1...300, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            // The head of a record, as long as the rest or longer.
            if round % 2 == 0 { bytes = [22, 3, 1, 0, UInt8(truncatingIfNeeded: bytes.count), 1, 0] + bytes }
            peer.send(bytes)
            peer.shutDown()
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamError is TLSError)
            server.close()
        }
    }

    @Test func `streams can be closed at any moment`() throws {
        let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
        for round in 0..<60 {
            let pair = try TLSPair(client: client, server: server, isTCP: round % 2 == 0)
            for _ in 0..<round * 20 { sched_yield() }
            if round % 3 == 0 { pair.client.output.writeAll([1]) }
            (round % 4 < 2 ? pair.client : pair.server).close()
            let left = round % 4 < 2 ? pair.server : pair.client
            _ = left.input.readToEnd()
            #expect([.atEnd, .error].contains(left.input.streamStatus))
            pair.close()
        }
    }

    @Test func `a thousand connections are open at once`() throws {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = max(limit.rlim_cur, min(limit.rlim_max, 8192))
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
        let pairs = try (0..<1000).map { _ in try TLSPair(client: client, server: server) }
        for (index, pair) in pairs.enumerated() {
            pair.client.output.writeAll([UInt8(truncatingIfNeeded: index)])
        }
        for (index, pair) in pairs.enumerated() {
            #expect(pair.server.input.read(exactly: 1) == [UInt8(truncatingIfNeeded: index)])
        }
        for pair in pairs { pair.close() }
    }

    @Test func `a certificate is replaced while a listener runs`() throws {
        let settings = Shared(try TLSSettings.testServer(TestCertificates.expired))
        var servers: [Listener.Connection] = []
        let listener = try Listener(.ipv4Loopback(port: 0), tls: { settings.value }) { _, connection in
            for stream in [connection.input, connection.output] as [Stream] { stream.open() }
            servers.append(connection)
        } faults: {
            Issue.record($1)
        }
        try RunLoop.current.add(listener, forMode: .default)
        for status in [Stream.Status.error, .open] {
            #expect(try statusOfClient(of: listener) == status)
            settings.value = try TLSSettings.testServer()
        }
        listener.close()
    }

    /// Connects a client to a listener of this thread's loop, until its first event.
    private func statusOfClient(of listener: Listener) throws -> Stream.Status {
        let (input, output) = Stream.connection(to: listener.localAddress)
        defer { for stream in [input, output] as [Stream] { stream.close() } }
        try input.startTLS(.testClient())
        let recorder = Recorder()
        input.delegate = recorder
        input.schedule(in: .current, forMode: .default)
        input.open()
        RunLoop.current.serve { !recorder.events.isEmpty }
        return input.streamStatus
    }

    @Test func `a listener reports settings that cannot be used, and goes on`() async throws {
        try await onItsOwnThread {
            let good = try TLSSettings.testServer()
            let current = Shared<TLSSettings?>(good)
            var (errors, servers): ([any Error], [Listener.Connection]) = ([], [])
            func settings() throws -> TLSSettings {
                guard let settings = current.value else { throw Errno.noSuchFileOrDirectory }
                return settings
            }
            let listener = try Listener(.ipv4Loopback(port: 0), tls: settings) { _, connection in
                for stream in [connection.input, connection.output] as [Stream] { stream.open() }
                servers.append(connection)
            } faults: {
                errors.append($1)
            }
            try RunLoop.current.add(listener, forMode: .default)
            for settings in [TLSSettings.server(), .client(), nil, good] {
                current.value = settings
                #expect(try statusOfClient(of: listener) == (settings == good ? .open : .error))
            }
            #expect(errors.count == 3 && servers.count == 1)
            #expect(errors.map { $0 is TLSError } == [true, true, false])
            listener.close()
        }
    }

    @Test func `a listener is refused the settings of a client`() {
        func settings() -> TLSSettings { .testClient() }
        #expect(throws: TLSError.self) {
            try Listener(.ipv4Loopback(port: 0), tls: .testClient()) { _, _ in
            } faults: { _, _ in
            }
        }
        #expect(throws: TLSError.self) {
            try Listener(.ipv4Loopback(port: 0), tls: settings) { _, _ in
            } faults: { _, _ in
            }
        }
    }
}
