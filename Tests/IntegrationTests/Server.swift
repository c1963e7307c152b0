import ReactorFoundation
import ReactorTestSupport

/// A third-party server that runs as a child process on a loopback port.
final class Server {
    let port: Int
    private let child: Child

    private init(port: Int, child: Child) {
        self.port = port
        self.child = child
    }

    deinit { stop() }

    func stop() {
        child.send(SIGKILL)
        _ = child.wait()
    }

    /// Starts Redis and waits until it accepts connections.
    static func redis() throws -> Server {
        try start("redis-server") { port in
            ["--port", "\(port)", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        } isReady: { child in
            while let line = child.readLine() {
                if line.contains("Ready to accept connections") { return true }
            }
            return false
        }
    }

    /// Starts Mosquitto and waits until it accepts connections.
    static func mosquitto() throws -> Server {
        let folder = TemporaryFolder()
        return try start("mosquitto") { port in
            let lines = [
                "listener \(port) 127.0.0.1", "allow_anonymous true", "user root", "log_dest stderr",
            ]
            return ["-c", try folder.file((lines.joined(separator: "\n") + "\n").utf8).string]
        } isReady: { child in
            while let line = child.readErrorLine() {
                if line.contains("running") { return true }
            }
            return false
        }
    }

    /// Tries several ports, because another program may take a free port before the server binds it.
    private static func start(
        _ name: String, arguments: (Int) throws -> [String], isReady: (Child) -> Bool
    ) throws -> Server {
        guard let path = ServerProgram.path(of: name) else { throw Missing(name: name) }
        for _ in 0..<10 {
            let port = freePort()
            // The kernel kills the server when the thread that started it ends.
            let command = ["--pdeathsig", "KILL", path] + (try arguments(port))
            let child = try Child("/usr/bin/setpriv", command)
            if isReady(child) { return Server(port: port, child: child) }
            _ = child.wait()
        }
        throw Missing(name: name)
    }

    private static func freePort() -> Int {
        let port = SocketPort()
        defer { port.invalidate() }
        return Int(port.address[2]) << 8 | Int(port.address[3])
    }

    struct Missing: Error { let name: String }
}
