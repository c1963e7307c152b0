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
    /// A client of the library with its server. The client's input is read at each event.
    private struct Connection {
        let client: TLSEnd
        let socket: SocketPeer
        let server: OpenSSLServer
        let recorder = Recorder(readingUpTo: 65_536)

        init(version: CInt = TLS1_3_VERSION) throws {
            (client, socket) = try TLSEnd.withPeer(.testClient())
            server = OpenSSLServer(socket, version: version)
            client.settle()
            client.input.delegate = recorder
            client.input.schedule(in: .current, forMode: .default)
        }

        /// Sends records as they are, and serves them.
        func send(_ records: [UInt8]) {
            socket.send(records)
            RunLoop.current.servePending()
        }
    }

    @Test(arguments: [TLS1_2_VERSION, TLS1_3_VERSION])
    func `an end that arrives with the last bytes counts`(version: CInt) throws {
        let connection = try Connection(version: version)
        connection.socket.send(
            connection.server.records { ssl in
                SSL_write(ssl, pattern(100), 100)
                SSL_shutdown(ssl)
            })
        RunLoop.current.serve { connection.recorder.count(.endEncountered) > 0 }
        #expect(connection.recorder.bytes == pattern(100))
        #expect(connection.client.input.streamStatus == .atEnd)
        // The other direction is still open.
        _ = connection.client.output.write([1, 2])
        #expect(connection.server.read(exactly: 2) == [1, 2])
    }

    @Test(arguments: [false, true])
    func `what is written while a ticket has arrived in part follows in order`(ends: Bool) throws {
        let connection = try Connection()
        let (output, ticket) = (connection.client.output, connection.server.ticket())
        #expect(ticket.count > 2)
        connection.send(ticket[0])
        let sent = (ends ? [] : pattern(100_000)) + [7]
        _ = output.write(sent)
        #expect(output.streamStatus == .open)
        // The rest, and bytes for the input, which has to find them.
        connection.socket.send(ticket.dropFirst().flatMap { $0 })
        connection.socket.send(connection.server.records { SSL_write($0, [9], 1) })
        if ends {
            try output.shutDown()
        } else {
            RunLoop.current.serve { !connection.recorder.bytes.isEmpty }
            _ = output.write([8])
        }
        #expect(connection.server.read(exactly: sent.count + 1) == sent + (ends ? [] : [8]))
        #expect(connection.server.isEnded == ends)
        RunLoop.current.serve { !connection.recorder.bytes.isEmpty }
        #expect(connection.recorder.bytes == [9])
    }

    @Test func `a flush waits for what is written while a ticket has arrived in part`() throws {
        let connection = try Connection()
        let (output, ticket) = (connection.client.output, connection.server.ticket())
        connection.send(ticket[0])
        // Nothing of the client reads what follows.
        connection.client.input.remove(from: .current, forMode: .default)
        _ = output.write([7])
        expectErrno(.timedOut) { try output.flushAndWait(until: .now) }
        connection.socket.send(ticket.dropFirst().flatMap { $0 })
        try output.flushAndWait()
        #expect(connection.server.read(exactly: 1) == [7])
    }

    @Test func `bytes that wait for the rest of a ticket count for the write timeout`() throws {
        let (number, other) = try socketPair()
        let client = TLSEnd(
            Reactor.Connection(
                descriptor: FileDescriptor(rawValue: number), options: .init(writeTimeout: .milliseconds(50)))
        )
        try client.input.beginTLS(.testClient())
        client.open()
        let socket = SocketPeer(other)
        let server = OpenSSLServer(socket, version: TLS1_3_VERSION)
        client.settle()
        let recorder = Recorder()
        client.input.delegate = recorder
        client.input.schedule(in: .current, forMode: .default)
        socket.send(server.ticket()[0])
        RunLoop.current.servePending()
        _ = client.output.write([7])
        expectErrno(.timedOut) { try client.output.flushAndWait() }
        withExtendedLifetime(recorder) {}
        client.close()
    }

    @Test(arguments: [false, true])
    func `ending the output within a message is an error if written bytes are lost`(closes: Bool) throws {
        let connection = try Connection()
        let output = connection.client.output
        connection.send(connection.server.ticket()[0])
        _ = output.write([7])
        if closes {
            connection.client.close()
        } else {
            #expect(throws: TLSError.self) { try output.shutDown() }
        }
        #expect(output.streamStatus == .error)
        #expect(output.streamError != nil)
    }

    @Test func `a peer that ends within a message is an error if written bytes are lost`() throws {
        let connection = try Connection()
        connection.send(connection.server.ticket()[0])
        _ = connection.client.output.write([7])
        connection.socket.send(connection.server.records { SSL_shutdown($0) })
        RunLoop.current.serve { connection.client.output.streamStatus == .error }
        #expect(connection.client.output.streamError is TLSError)
    }

    @Test func `a message that never ends is an error for a writer, and leaves none in the queue`() throws {
        let connection = try Connection()
        connection.send(connection.server.ticket()[0])
        let (output, block) = (connection.client.output, pattern(65_536))
        var count = 0
        while case let more = output.write(block, maxLength: block.count), more > 0, count < 16 << 20 {
            count += more
        }
        #expect(count >= 65_536 && count < 16 << 20)
        let error = output.streamError as? TLSError
        if case .protocolViolation? = error?.reason {} else { Issue.record("another error") }
        connection.client.close()
        #expect(ERR_peek_error() == 0)
        #expect(connection.recorder.bytes.isEmpty)
    }

    @Test func `a close within a message leaves no error in OpenSSL's queue`() throws {
        let connection = try Connection()
        connection.send(connection.server.ticket()[0])
        connection.client.close()
        #expect(ERR_peek_error() == 0)
        #expect(connection.recorder.bytes.isEmpty)
    }

    @Test(arguments: [true, false])
    func `a peer that announces its end in the handshake fails it`(isServer: Bool) throws {
        let announcement: [UInt8] = [21, 3, 3, 0, 2, 1, 0]
        let (end, peer) = try TLSEnd.withPeer(isServer ? .testServer() : .testClient())
        peer.send((isServer ? OpenSSLClient.hello : []) + announcement)
        #expect(end.settle().error?.reason == .closedInHandshake)
    }

    @Test func `a hello that cannot be sent fails the handshake with the socket's error`() throws {
        let (client, peer) = try TLSEnd.withPeer()
        // The peer receives nothing more, and stays silent.
        shutdown(peer.number, CInt(SHUT_RD))
        try client.input.beginTLS(.testClient())
        client.open()
        #expect(client.settle().input.streamErrno == .brokenPipe)
    }

    @Test func `a server receives what a client has sent that takes no tickets`() throws {
        let (server, socket) = try TLSEnd.withPeer(.testServer())
        let client = OpenSSLClient(socket) { shutdown(socket.number, CInt(SHUT_RD)) }
        client.write([1, 2, 3])
        #expect(server.input.read(exactly: 3) == [1, 2, 3])
        #expect(server.output.write([1], maxLength: 1) < 1)
        #expect(server.output.streamErrno == .brokenPipe)
    }
}
