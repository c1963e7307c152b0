import ArgumentParser
import ExampleSupport
import Reactor
import SystemPackage
import TLSOptions

/// An echo server with one run loop per thread.
@main
struct EchoServerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "echo-server",
        abstract: "An echo server with one run loop per thread.",
        discussion: """
            After SIGINT or SIGTERM the server accepts no new connections, and exits when its clients have disconnected. \
            A second signal kills it.
            """)

    @Option(help: "The address to listen on, such as 127.0.0.1, ::1, or :: for all addresses.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 lets the kernel choose one.")
    var port: UInt16 = 7007

    @Option(name: .customLong("unix"), help: "Listen on a Unix-domain socket at this path instead.")
    var path: String?

    @Option(help: "The number of threads that accept connections on the port.")
    var threads = 1

    @Option(help: "Seconds to wait for clients to disconnect after a signal.")
    var drainSeconds = 5.0

    @OptionGroup var tls: ServerTLSOptions

    @Flag(help: "Print the statistics as one JSON object.")
    var json = false

    func validate() throws {
        guard (1...256).contains(threads) else {
            throw ValidationError("--threads must be between 1 and 256.")
        }
        guard (0...3600).contains(drainSeconds) else {
            throw ValidationError("--drain-seconds must be between 0 and 3600.")
        }
        guard path == nil || threads == 1 else {
            throw ValidationError(
                "--unix and --threads cannot be combined: threads cannot share a Unix-domain path.")
        }
        _ = try address
    }

    /// The address to listen on.
    private var address: SocketAddress {
        get throws {
            if let path { return try SocketAddress(unixPath: FilePath(path)) }
            guard let address = SocketAddress(host, port: port) else {
                throw ValidationError(
                    "--host must be a numeric address; host names are not resolved: \(host)")
            }
            return address
        }
    }

    func run() throws {
        try StandardDescriptors.fillGaps()
        try DescriptorLimit.raise()
        let statistics = Statistics(serverCount: threads) { RunLoop.main.perform { RunLoop.main.stop() } }
        var address = try address
        var workers: [RunLoopThread] = []
        let security = try tls.security
        for number in 1...threads {
            let worker = try RunLoopThread(name: "echo \(number)")
            // If the port is 0, the kernel chooses one for the first server, and the others share it.
            address = try worker.runLoop.performAndWait { [address] in
                let server = try EchoServer(
                    at: address, sharesPort: threads > 1, drainTimeout: .seconds(drainSeconds),
                    security: security, statistics)
                return server.address
            }
            workers.append(worker)
        }
        try printLine("Listening on \(address)")
        // The main loop has no work of its own: it waits for the last server to finish.
        RunLoop.main.run(in: .default)
        for worker in workers { worker.stop() }
        try printLine(json ? statistics.json : statistics.summary)
    }

    /// Writes a line without buffering, even if standard output is a pipe.
    private func printLine(_ line: String) throws {
        try FileDescriptor.standardOutput.writeAll(Array("\(line)\n".utf8))
    }
}
