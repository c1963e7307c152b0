import Glibc
import Reactor
package import SystemPackage

/// nginx on free ports of loopback, plain and with TLS. One for all tests, which ends with the process.
package final class Nginx: Sendable {
    package let plain: String
    package let secure: String
    /// The certificate, which is its own root and is for `localhost` only.
    package let certificate: FilePath
    /// What is served.
    package let folder: FilePath
    private let isOver = Countdown(1)
    private let thread: JoinableThread

    package static var isAvailable: Bool {
        ServerProgram.isAvailable("nginx") && access("/usr/bin/openssl", X_OK) == 0
    }

    package static let shared = Result { try Nginx() }

    /// A body whose every byte depends on its place.
    package static let bytes = (0..<3_000_001).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    package static let text = String(repeating: "All work and no play. ", count: 10_000)

    private init() throws {
        let temporary = TemporaryFolder()
        folder = temporary.path
        certificate = folder.appending("certificate.pem")
        _ = try temporary.file("hello\n".utf8, name: "hello.txt")
        _ = try temporary.file(Self.text.utf8, name: "text.txt")
        _ = try temporary.file(Self.bytes, name: "bytes.bin")
        // Sparse: a run that is killed leaves it.
        truncate(try temporary.file([], name: "zeros").string, 50_000_000)
        try Self.makeCertificate(in: folder)
        let answer = Answer<Result<(UInt16, UInt16), any Error>>()
        // The kernel kills the server when this thread ends.
        thread = try JoinableThread(name: "nginx") { [isOver] in
            let server = Result { try Self.start(in: temporary) }
            answer.give(server.map { ($0.program.port, $0.securePort) })
            isOver.wait()
            withExtendedLifetime((temporary, server)) {}
        }
        let ports = try answer.wait().get()
        (plain, secure) = ("http://127.0.0.1:\(ports.0)", "https://localhost:\(ports.1)")
        atexit { try? Nginx.shared.get().stop() }
    }

    private func stop() {
        isOver.count()
        thread.join()
    }

    private static func makeCertificate(in folder: FilePath) throws {
        let child = try Child(
            "/usr/bin/openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "2",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                "-keyout", folder.appending("key.pem").string, "-out",
                folder.appending("certificate.pem").string,
            ])
        precondition(child.wait() == .exit(0), "openssl cannot make a certificate")
    }

    private static func start(in folder: TemporaryFolder) throws -> (
        program: ServerProgram, securePort: UInt16
    ) {
        var securePort: UInt16 = 0
        // The file is written when the server has bound its ports: another program may answer at them.
        let program = try ServerProgram("nginx") { _ in
            access(folder.path("nginx.pid"), F_OK) == 0
        } arguments: { port in
            securePort = try ServerProgram.freePort()
            let file = try folder.file(
                configuration((port, securePort), folder.path).utf8, name: "nginx.conf")
            return ["-p", folder.path.string, "-c", file.string, "-e", "stderr"]
        }
        return (program, securePort)
    }

    private static func configuration(_ ports: (UInt16, UInt16), _ folder: FilePath) -> String {
        """
        daemon off; master_process off; pid \(folder)/nginx.pid; error_log stderr crit;
        events { worker_connections 512; }
        http {
          access_log off; default_type application/octet-stream; keepalive_requests 100000;
          client_body_temp_path \(folder)/body; proxy_temp_path \(folder)/proxy;
          fastcgi_temp_path \(folder)/fastcgi; uwsgi_temp_path \(folder)/uwsgi; scgi_temp_path \(folder)/scgi;
          client_max_body_size 0;
          server {
            listen 127.0.0.1:\(ports.0); listen 127.0.0.1:\(ports.1) ssl http2; root \(folder);
            ssl_certificate \(folder)/certificate.pem; ssl_certificate_key \(folder)/key.pem;
            location /gzip/ { alias \(folder)/; gzip on; gzip_types *; gzip_min_length 1; }
            location /slow/ { alias \(folder)/; limit_rate 2m; }
            location /upload/ { dav_methods PUT DELETE; create_full_put_path on; }
            location /refused { client_max_body_size 1k; lingering_close off; dav_methods PUT; }
            location /moved { return 302 /hello.txt; }
            location /disguised { return 302 "\u{B}http://127.0.0.1:\(ports.0)/hello.txt"; }
            location /insecure { return 302 http://127.0.0.1:\(ports.0)/hello.txt; }
            location /loop { return 302 /loop; }
            location /broken { return 500 "oops"; }
            location ~ ^/relay/(\\d+)$ { proxy_pass http://127.0.0.1:$1; proxy_buffering off; }
            location /connection { return 200 "$connection"; }
          }
        }
        """
    }
}
