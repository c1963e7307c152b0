import ExampleTestSupport
import Glibc
import ReactorTesting
import SystemPackage
import Testing

/// The programs that speak TLS, with a certificate by openssl(1).
@Suite(.runLoop, .enabled(if: access("/usr/bin/openssl", X_OK) == 0)) struct TLSTests {
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

    /// Runs `server`, and tls-client against it, and returns the outcome of the client.
    private func talk(
        to server: String, trusting files: Files?, input: String, lines: Int
    ) throws -> Outcome {
        let own = try files ?? Files()
        let server = try Child(server, ["--port", "0"] + own.options)
        let port = try #require(server.readOutput(lines: 1).split(separator: ":").last?.dropLast())
        let trust = files.map { ["--ca", $0.certificate] } ?? []
        let outcome = try run("tls-client", ["localhost", String(port)] + trust, input: .pipe) { client in
            client.write(input)
            return client.readOutput(lines: lines)
        }
        server.send(SIGTERM)
        _ = server.wait()
        return withExtendedLifetime(own) { outcome }
    }

    @Test func `a client prints what it has agreed on, and receives its echo`() throws {
        let outcome = try talk(to: "echo-server", trusting: try Files(), input: "one\ntwo\n", lines: 2)
        #expect(outcome.ending == .exit(0) && outcome.output == "one\ntwo\n")
        #expect(outcome.errors.hasPrefix("TLSv1.3, TLS_") && outcome.errors.contains(" with localhost:"))
    }

    @Test func `a chat is protected`() throws {
        let outcome = try talk(to: "chat", trusting: try Files(), input: "/quit\n", lines: 1)
        #expect(outcome.output.hasPrefix("* Welcome, guest1."))
    }

    @Test func `a client fails if it does not trust the server`() throws {
        let outcome = try talk(to: "echo-server", trusting: nil, input: "x\n", lines: 1)
        #expect(outcome.output.isEmpty && outcome.failed("not trusted"))
    }
}
