import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

/// The programs that speak TLS, with a certificate by openssl(1).
@Suite(.enabled(if: access("/usr/bin/openssl", X_OK) == 0)) struct TLSTests {
    private final class Files: Sendable {
        let folder = TemporaryFolder()
        var certificate: String { folder.path("certificate.pem") }
        var key: String { folder.path("key.pem") }
        var options: [String] { ["--tls", "--certificate", certificate, "--key", key] }

        init() throws {
            let request = try Child(
                "/usr/bin/openssl",
                [
                    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "1",
                    "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost",
                ])
            _ = request.readErrors()
            try #require(request.wait() == .exit(0))
        }
    }

    /// Runs `server`, and tls-client against it; what the client prints to both outputs, and how it ends.
    private func talk(
        to server: String, trusting files: Files?, input: String, lines: Int
    ) async throws -> (output: String, errors: String, ending: Child.Ending) {
        let own = try files ?? Files()
        return try await onItsOwnThread {
            let server = try Child(server, ["--port", "0"] + own.options)
            let port = try #require(server.readOutput(lines: 1).split(separator: ":").last?.dropLast())
            let trust = files.map { ["--ca", $0.certificate] } ?? []
            let client = try Child("tls-client", ["localhost", String(port)] + trust, input: .pipe)
            client.write(input)
            let output = client.readOutput(lines: lines)
            client.closeInput()
            let result = (output, client.readErrors(), client.wait())
            server.send(SIGTERM)
            _ = server.wait()
            return result
        }
    }

    @Test func `a client prints what it has agreed on, and receives its echo`() async throws {
        let (output, errors, ending) = try await talk(
            to: "echo-server", trusting: try Files(), input: "one\ntwo\n", lines: 2)
        #expect(output == "one\ntwo\n")
        #expect(errors.hasPrefix("TLSv1.3, TLS_") && errors.contains(" with localhost:"))
        #expect(ending == .exit(0))
    }

    @Test func `a chat is protected`() async throws {
        let (output, _, _) = try await talk(to: "chat", trusting: try Files(), input: "/quit\n", lines: 1)
        #expect(output.hasPrefix("* Welcome, guest1."))
    }

    @Test func `a client fails with a reason if it does not trust the server`() async throws {
        let (output, errors, ending) = try await talk(
            to: "echo-server", trusting: nil, input: "x\n", lines: 1)
        #expect(output.isEmpty)
        #expect(
            errors.hasPrefix("TLS with localhost:")
                && errors.hasSuffix("the certificate is self-signed and not trusted\n"))
        #expect(ending == .exit(1))
    }

    @Test(arguments: [
        ["--tls"], ["--certificate", "x"], ["--tls", "--certificate", "/missing", "--key", "/missing"],
    ])
    func `a server without a certificate does not start`(options: [String]) throws {
        let server = try Child("echo-server", ["--port", "0"] + options)
        #expect(server.readOutput().isEmpty)
        #expect(!server.readErrors().isEmpty)
        #expect(server.wait() != .exit(0))
    }
}
