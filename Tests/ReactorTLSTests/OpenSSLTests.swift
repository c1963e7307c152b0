import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// The library's TLS with openssl(1) at the other end.
@Suite(.runLoop, .enabled(if: access("/usr/bin/openssl", X_OK) == 0)) struct OpenSSLTests {
    private static let program = "/usr/bin/openssl"

    /// The files of a certificate and its authority.
    private final class Files {
        let folder = TemporaryFolder()
        let certificate: String
        let key: String
        let authority: String

        init(_ own: Certificate = TestCertificates.localhost) throws {
            certificate = try folder.file(own.certificateText, name: "certificate.pem").string
            key = try folder.file(own.keyText, name: "key.pem").string
            authority = try folder.file(TestCertificates.authority.certificateText, name: "authority.pem")
                .string
        }
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `s_server answers a client`(version: String) throws {
        let files = try Files()
        let server = try Child(
            Self.program,
            [
                "s_server", "-accept", "127.0.0.1:0", "-cert", files.certificate, "-key", files.key, "-rev",
                "-naccept", "2", version,
            ], input: .pipe)
        var line = ""
        while !line.hasPrefix("ACCEPT"), let next = server.readLine() { line = next }
        let port = try #require(line.split(separator: ":").last.flatMap { UInt16($0) })
        var settings = TLSSettings.client()
        settings.trust = .file(files.authority)
        for _ in 0..<2 {
            let (input, output) = Stream.connection(toHost: "localhost", port: port)
            try input.startTLS(settings)
            for stream in [input, output] as [Stream] { stream.open() }
            output.writeAll(Array("abcdef\n".utf8))
            #expect(input.read(exactly: 7) == Array("fedcba\n".utf8))
            #expect(input.tlsSession?.version == (version == "-tls1_2" ? "TLSv1.2" : "TLSv1.3"))
            // It closes when it reads this.
            output.writeAll(Array("CLOSE\n".utf8))
            #expect(input.readToEnd().isEmpty)
            #expect(input.streamStatus == .atEnd, "\(input.streamError.map { "\($0)" } ?? "")")
            for stream in [input, output] as [Stream] { stream.close() }
        }
        server.send(SIGTERM)
        _ = server.wait()
    }

    /// Starts s_client, and serves it with `serve`.
    private static func withClient(
        _ arguments: [String], _ files: Files, settings: TLSSettings,
        _ serve: (TLSPair.End, Child) throws -> Void
    ) throws -> Child.Ending {
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let client = try Child(
            program,
            ["s_client", "-connect", "\(try listening.localAddress)", "-servername", "localhost"] + arguments,
            input: .pipe)
        let end = TLSPair.end(try listening.acceptNumber())
        try end.input.startTLS(settings)
        for stream in end.streams { stream.open() }
        try serve(end, client)
        end.close()
        client.closeInput()
        return client.wait()
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `s_client verifies a server, and both end in order`(version: String) throws {
        let files = try Files()
        let arguments = [
            "-CAfile", files.authority, "-verify_return_error", "-quiet", "-no_ign_eof", version,
        ]
        let ending = try Self.withClient(arguments, files, settings: .testServer()) { server, client in
            client.write("hello")
            #expect(server.input.read(exactly: 5) == Array("hello".utf8))
            server.output.writeAll(Array("world".utf8))
            #expect(client.readOutput(bytes: 5) == "world")
            client.closeInput()
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamStatus == .atEnd)
        }
        #expect(ending == .exit(0))
    }

    @Test func `s_client presents a certificate and chooses a protocol`() throws {
        let files = try Files(TestCertificates.client)
        let settings = try TLSSettings.testServer {
            $0.clientCertificates = .required
            $0.applicationProtocols = ["h2"]
        }
        let arguments = ["-quiet", "-cert", files.certificate, "-key", files.key, "-alpn", "http/1.1,h2"]
        _ = try Self.withClient(arguments, files, settings: settings) { server, client in
            client.write("x")
            #expect(server.input.read(exactly: 1) == [0x78])
            #expect(server.input.tlsSession?.applicationProtocol == "h2")
            #expect(server.input.tlsSession?.peerCertificates.count == 1)
        }
    }

    @Test func `new keys make no event, and the connection goes on`() throws {
        let files = try Files()
        _ = try Self.withClient(["-tls1_3"], files, settings: .testServer()) { server, client in
            let recorder = Recorder()
            recorder.onEvent = { stream, event in
                if event == .hasBytesAvailable {
                    recorder.bytes += (stream as! InputStream).read(exactly: 2)
                }
            }
            server.input.delegate = recorder
            server.input.schedule(in: .current, forMode: .default)
            for text in ["a\n", "b\n"] {
                // Asks the server for new keys, too.
                client.write("K\n")
                let line = try #require(client.readErrorLineWithKeyUpdate())
                #expect(line.contains("KEYUPDATE"))
                client.write(text)
                let count = recorder.bytes.count
                RunLoop.current.serve { recorder.bytes.count == count + 2 }
            }
            #expect(recorder.bytes == Array("a\nb\n".utf8))
            #expect(recorder.count(.hasBytesAvailable) == 2)
            server.output.writeAll([1])
            #expect(server.output.streamStatus == .open)
        }
    }

    @Test func `a client cannot begin another handshake`() throws {
        let files = try Files()
        let ending = try Self.withClient(["-tls1_2"], files, settings: .testServer()) { server, client in
            client.write("x\n")
            #expect(server.input.read(exactly: 2) == [0x78, 0x0A])
            client.write("R\n")
            #expect(server.input.readToEnd().isEmpty)
        }
        #expect(ending != .exit(0))
    }
}

extension Child {
    fileprivate func readErrorLineWithKeyUpdate() -> String? {
        while let line = readErrorLine() { if line.contains("KEYUPDATE") { return line } }
        return nil
    }
}
