import Foundation
import Measuring

/// Downloads from nginx on loopback, which this process starts: `http-PEER body|secure|small COUNT`.
///
/// body: a body of COUNT MiB; secure: the same over TLS; small: COUNT bodies of 10 KB over 8 connections. Prints
/// cpu-s/GB GB/s peak-KiB, or cpu-us/request requests/s peak-KiB; and what the peer adds.
public struct HTTPWorkload {
    /// Whether many small bodies are downloaded, or one large one.
    public let isSmall: Bool
    /// The number of small bodies, or of MiB.
    public let count: Int
    /// What to download, `count` times if the bodies are small.
    public let url: String
    /// The server's certificate, if the workload is over TLS.
    public let certificate: String?

    private let server: pid_t
    private let folder: URL
    private let begin: (wall: Int64, processor: Int64)

    /// How many bytes all bodies have.
    public var byteCount: Int { isSmall ? count * Self.smallSize : count << 20 }

    private static let smallSize = 10_000

    /// Starts the server, as the arguments of the program say.
    public init() throws {
        let arguments = CommandLine.arguments
        guard arguments.count > 2, let count = Int(arguments[2]) else {
            throw CocoaError(.featureUnsupported)
        }
        (isSmall, self.count) = (arguments[1] == "small", count)
        let isSecure = arguments[1] == "secure"
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("http-\(getpid())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let file = folder.appendingPathComponent("body").path
        _ = FileManager.default.createFile(atPath: file, contents: nil)
        truncate(file, isSmall ? Self.smallSize : count << 20)  // of zeros, which take no room on the disk
        certificate = isSecure ? folder.appendingPathComponent("certificate.pem").path : nil
        if isSecure { try Self.makeCertificate(in: folder.path) }
        let port = Self.freePort()
        url = isSecure ? "https://localhost:\(port)/body" : "http://127.0.0.1:\(port)/body"
        server = try Self.startServer(in: folder, port, isSecure)
        begin = (now(), processorTime())
    }

    private static func freePort() -> Int {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var (address, size) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                guard bind(descriptor, $0, size) == 0, getsockname(descriptor, $0, &size) == 0 else {
                    fatalError("there is no free port")
                }
            }
        }
        return Int(UInt16(bigEndian: address.sin_port))
    }

    private static func makeCertificate(in folder: String) throws {
        let arguments = """
            req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost -keyout \(folder)/key.pem -out \(folder)/certificate.pem
            """
        let openssl = Process()
        openssl.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
        openssl.arguments = arguments.split(separator: " ").map(String.init)
        openssl.standardError = FileHandle.nullDevice
        try openssl.run()
        openssl.waitUntilExit()
    }

    private static func startServer(in folder: URL, _ port: Int, _ isSecure: Bool) throws -> pid_t {
        let (path, keys) = (folder.path, isSecure ? "ssl http2" : "")
        let certificate =
            isSecure ? "ssl_certificate \(path)/certificate.pem; ssl_certificate_key \(path)/key.pem;" : ""
        let configuration = """
            daemon off; master_process off; pid \(path)/pid; error_log stderr crit; events { worker_connections 64; }
            http { access_log off; keepalive_requests 1000000; sendfile on; client_body_temp_path \(path)/b;
              proxy_temp_path \(path)/p; fastcgi_temp_path \(path)/f; uwsgi_temp_path \(path)/u; scgi_temp_path \(path)/s;
              server { listen 127.0.0.1:\(port) \(keys); root \(path); \(certificate) } }
            """
        try configuration.write(to: folder.appendingPathComponent("conf"), atomically: false, encoding: .utf8)
        let search = (ProcessInfo.processInfo.environment["PATH"] ?? "") + ":/usr/sbin"
        let paths: [String] = search.split(separator: ":").map { $0 + "/nginx" }
        let nginx = paths.first { access($0, X_OK) == 0 }
        // It ends with this process, also if that is killed: who reads this one's output would wait for it otherwise.
        let server = try spawn(
            ["/usr/bin/setpriv", "--pdeathsig", "TERM", nginx ?? "/usr/sbin/nginx"]
                + ["-p", path, "-c", "\(path)/conf", "-e", "stderr"])
        while access("\(path)/pid", F_OK) != 0 {
            guard waitpid(server, nil, WNOHANG) == 0 else { throw CocoaError(.executableLoad) }
            usleep(1000)
        }
        return server
    }

    /// Starts a program. Foundation's `Process` fails under valgrind.
    private static func spawn(_ arguments: [String]) throws -> pid_t {
        // A library that counts this process's allocations must not count the server's.
        let environment = ProcessInfo.processInfo.environment.filter { $0.key != "LD_PRELOAD" }
        let words = arguments.map { strdup($0) } + [nil]
        let variables = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for word in words + variables { free(word) } }
        var process = pid_t()
        guard posix_spawn(&process, arguments[0], nil, nil, words, variables) == 0 else {
            throw CocoaError(.executableNotLoadable)
        }
        return process
    }

    /// What a process has used.
    public struct Usage {
        /// In nanoseconds.
        let processorTime: Int64
        /// The most memory that was resident.
        let peakKibibytes: Int

        /// What a child has used that did the work.
        public init(processorTime: Int64, peakKibibytes: Int) {
            (self.processorTime, self.peakKibibytes) = (processorTime, peakKibibytes)
        }
    }

    /// Stops the server and prints the columns for what this process has used, or the child that has done the work.
    public func end(_ columns: [String] = [], child: Usage? = nil) -> Never {
        let wall = Double(now() - begin.wall)
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        let used =
            child
            ?? Usage(processorTime: processorTime() - begin.processor, peakKibibytes: usage.ru_maxrss)
        let processor = Double(used.processorTime)
        kill(server, SIGTERM)
        waitpid(server, nil, 0)
        try? FileManager.default.removeItem(at: folder)
        let cost = isSmall ? processor / 1000 / Double(count) : processor / Double(byteCount)
        let rate = isSmall ? Double(count) * 1e9 / wall : Double(byteCount) / wall
        report([fixed(cost, 3), fixed(rate, isSmall ? 0 : 2), "\(used.peakKibibytes)"] + columns)
    }
}
