import ArgumentParser
import Reactor
import SystemPackage

/// Sends back whatever it gets, on as many threads as it is told, each with a run loop of its own.
@main
struct EchoServerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "echo-server",
        abstract:
            "Sends back whatever it gets, on as many threads as it is told, each with a run loop of its own.",
        discussion: """
            SIGINT and SIGTERM have it accept nobody any more, and end when its clients have gone; a second signal \
            ends it at once.
            """)

    @Option(help: "Where to listen: an address, such as 127.0.0.1, ::1, or :: for all of this machine's.")
    var host = "127.0.0.1"

    @Option(help: "The port; 0 for one that the kernel chooses.")
    var port: UInt16 = 7007

    @Option(name: .customLong("unix"), help: "The path of a Unix-domain socket to listen at instead.")
    var path: String?

    @Option(help: "How many threads share the port.")
    var threads = 1

    @Option(help: "How long clients may take to leave, after a signal, in seconds.")
    var drainSeconds = 5.0

    @Flag(help: "Print, in the end, the totals as one JSON object.")
    var json = false

    func validate() throws {
        guard (1...256).contains(threads) else { throw ValidationError("Between 1 and 256 threads, please.") }
        guard (0...3600).contains(drainSeconds) else {
            throw ValidationError("The drain takes between 0 and 3600 seconds.")
        }
        guard path == nil || threads == 1 else {
            throw ValidationError("A Unix-domain path cannot be shared: --unix takes one thread.")
        }
        _ = try address
    }

    /// Where to listen.
    private var address: SocketAddress {
        get throws {
            if let path { return try SocketAddress(unixPath: path) }
            guard let address = SocketAddress(host, port: port) else {
                throw ValidationError("\(host) is no address; names are not looked up here.")
            }
            return address
        }
    }

    func run() throws {
        try DescriptorLimit.raise()
        let tally = Tally(servers: threads) { RunLoop.main.perform { RunLoop.main.stop() } }
        var address = try address
        var workers: [RunLoopThread] = []
        for number in 1...threads {
            let worker = try RunLoopThread(name: "echo \(number)")
            // The first one learns which port the kernel has chosen, and the others share it.
            address = try worker.runLoop.performAndWait { [address] in
                let server = try EchoServer(
                    at: address, isShared: threads > 1, tally, patience: .seconds(drainSeconds))
                return server.address
            }
            workers.append(worker)
        }
        try say("Listening on \(address)")
        // Nothing happens here: the loop sleeps until the last server is done.
        RunLoop.main.run(in: .default)
        for worker in workers { worker.stop() }
        try say(json ? tally.json : tally.summary)
    }

    /// Writes a line at once, whatever standard output is.
    private func say(_ line: String) throws {
        try FileDescriptor.standardOutput.writeAll(Array("\(line)\n".utf8))
    }
}
