import CReactorOpenSSL
import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Records of another implementation, which arrive together or in pieces.
@Suite(.runLoop) struct RecordTests {
    /// A client of the library with its server.
    private struct Connection {
        let client: TLSPair.End
        let socket: SocketPeer
        let server: OpenSSLServer

        init(version: CInt = TLS1_3_VERSION) throws {
            let (number, other) = try socketPair()
            client = TLSPair.end(number)
            try client.input.startTLS(.testClient())
            for stream in client.streams { stream.open() }
            socket = SocketPeer(other)
            server = OpenSSLServer(socket, version: version)
            waitUntil { [client] in client.streams.allSatisfy { $0.streamStatus != .opening } }
        }
    }

    /// Schedules the input, and reads at each event.
    private static func makeReader(_ input: InputStream) -> Recorder {
        let recorder = Recorder()
        recorder.onEvent = { stream, event in
            guard event == .hasBytesAvailable else { return }
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = (stream as! InputStream).read(&buffer, maxLength: buffer.count)
            recorder.bytes += buffer.prefix(max(0, count))
        }
        input.delegate = recorder
        input.schedule(in: .current, forMode: .default)
        return recorder
    }

    /// Serves what has arrived already.
    private static func servePending() {
        for _ in 0..<5 { RunLoop.current.run(in: .default, until: .distantPast) }
    }

    // MARK: The peer's end

    @Test(arguments: [TLS1_2_VERSION, TLS1_3_VERSION])
    func `an end that arrives with the last bytes counts, although the socket stays open`(
        version: CInt
    ) throws {
        let connection = try Connection(version: version)
        let recorder = Self.makeReader(connection.client.input)
        let bytes = connection.server.records { ssl in
            SSL_write(ssl, pattern(100), 100)
            SSL_shutdown(ssl)
        }
        connection.socket.send(bytes)
        RunLoop.current.serve { recorder.count(.endEncountered) > 0 }
        #expect(recorder.bytes == pattern(100))
        #expect(connection.client.input.streamStatus == .atEnd)
        // The other direction is still open.
        connection.client.output.writeAll([1, 2])
        #expect(connection.server.read(exactly: 2) == [1, 2])
        connection.client.close()
    }

    // MARK: Messages in pieces

    @Test func `what is written while a ticket has arrived in part follows later, in order`() throws {
        let connection = try Connection()
        let recorder = Self.makeReader(connection.client.input)
        let ticket = connection.server.ticket()
        #expect(ticket.count > 2)
        connection.socket.send(ticket[0])
        Self.servePending()
        connection.client.output.writeAll(pattern(100_000))
        connection.client.output.writeAll([7])
        #expect(connection.client.output.streamStatus == .open)
        connection.socket.send(ticket.dropFirst().flatMap { $0 })
        connection.socket.send(connection.server.records { SSL_write($0, [9], 1) })
        RunLoop.current.serve { !recorder.bytes.isEmpty }
        #expect(recorder.bytes == [9])
        #expect(connection.server.read(exactly: 100_001) == pattern(100_000) + [7])
        connection.client.output.writeAll([8])
        #expect(connection.server.read(exactly: 1) == [8])
        connection.client.close()
    }

    @Test func `an output that ends while a ticket has arrived in part announces its end`() throws {
        let connection = try Connection()
        let recorder = Self.makeReader(connection.client.input)
        let ticket = connection.server.ticket()
        connection.socket.send(ticket[0])
        Self.servePending()
        connection.client.output.writeAll([7])
        // The rest, and bytes for the input, which has to find them.
        connection.socket.send(ticket.dropFirst().flatMap { $0 })
        connection.socket.send(connection.server.records { SSL_write($0, [9], 1) })
        try connection.client.output.shutDown()
        #expect(connection.server.read(exactly: 2) == [7])
        #expect(connection.server.isEnded)
        RunLoop.current.serve { !recorder.bytes.isEmpty }
        #expect(recorder.bytes == [9])
        connection.client.close()
    }

    @Test func `a message that never ends is an error for a writer, and leaves none in the queue`()
        async throws
    {
        try await onItsOwnThread {
            let connection = try Connection()
            let recorder = Self.makeReader(connection.client.input)
            connection.socket.send(connection.server.ticket()[0])
            Self.servePending()
            var count = 0
            let block = pattern(65_536)
            while case let more = connection.client.output.write(block, maxLength: block.count), more > 0 {
                count += more
                #expect(count < 16 << 20)
            }
            #expect(count >= 65_536)
            let error = connection.client.output.streamError as? TLSError
            guard case .protocolViolation = error?.reason else {
                Issue.record("\(error.map { "\($0)" } ?? "no error")")
                return
            }
            connection.client.close()
            #expect(ERR_peek_error() == 0)
            #expect(recorder.bytes.isEmpty)
        }
    }

    @Test func `a close within a message leaves no error in OpenSSL's queue`() throws {
        let connection = try Connection()
        let recorder = Self.makeReader(connection.client.input)
        connection.socket.send(connection.server.ticket()[0])
        Self.servePending()
        connection.client.close()
        #expect(ERR_peek_error() == 0)
        #expect(recorder.bytes.isEmpty)
    }

    @Test func `a peer that announces its end in the handshake fails it, although the socket stays open`()
        throws
    {
        let announcement: [UInt8] = [21, 3, 3, 0, 2, 1, 0]
        for isServer in [true, false] {
            let (number, other) = try socketPair()
            let (end, peer) = (TLSPair.end(number), SocketPeer(other))
            try end.input.startTLS(isServer ? .testServer() : .testClient())
            for stream in end.streams { stream.open() }
            peer.send((isServer ? OpenSSLClient.hello : []) + announcement)
            waitUntil { end.input.streamStatus != .opening }
            #expect(end.error?.reason == .closedInHandshake)
            end.close()
        }
    }

    // MARK: Flights that cannot be sent

    @Test func `a hello that cannot be sent fails the handshake with the socket's error`() throws {
        let (number, other) = try socketPair()
        let (client, peer) = (TLSPair.end(number), SocketPeer(other))
        // The peer receives nothing more, and stays silent.
        shutdown(peer.number, CInt(SHUT_RD))
        try client.input.startTLS(.testClient())
        client.input.connectTimeout = .seconds(20)
        for stream in client.streams { stream.open() }
        waitUntil { client.input.streamStatus != .opening }
        #expect(client.input.streamErrno == .brokenPipe)
        client.close()
    }

    @Test func `a server receives what a client has sent that takes no tickets`() throws {
        let (number, other) = try socketPair()
        let (server, socket) = (TLSPair.end(number), SocketPeer(other))
        try server.input.startTLS(.testServer())
        for stream in server.streams { stream.open() }
        let client = OpenSSLClient(socket) { shutdown(socket.number, CInt(SHUT_RD)) }
        client.write([1, 2, 3])
        #expect(server.input.read(exactly: 3) == [1, 2, 3])
        #expect(server.output.write([1], maxLength: 1) < 1)
        #expect(server.output.streamErrno == .brokenPipe)
        server.close()
    }
}
