import ArgumentParser
import ExampleSupport
import Reactor

/// Hosts servers of the Model Context Protocol.
@main
struct MCPHostCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mcp-host",
        abstract: "Hosts servers of the Model Context Protocol, each a child process, on one thread.",
        discussion: """
            Starts the servers, counts what the host does while none of them sends, times requests to one of them beside the \
            others, and kills one while the others answer.
            """)

    @Option(help: "How many servers.")
    var children = 100

    @Option(help: "How many seconds to be idle.")
    var idle = 5.0

    @Option(help: "How many requests to time, one after the other.")
    var rounds = 10_000

    @Flag(help: "Ask each server's output every 10 ms, as a host without an event loop does.")
    var poll = false

    @Flag(help: "Be such a server, on standard input and output.")
    var serve = false

    func validate() throws {
        guard children > 0, rounds > 0, idle >= 0 else {
            throw ValidationError("Servers and requests are counted from 1 on, and the time from 0.")
        }
    }

    @MainActor func run() async throws {
        if serve { return try await Self.answer() }
        try DescriptorLimit.raise()
        let host = Host(executable: "/proc/self/exe", polls: poll)
        try await withThrowingDiscardingTaskGroup { group in
            try await host.start(children, in: &group)
            try await host.idle(for: .seconds(idle))
            try await host.measure(rounds: rounds)
            try await host.killOne()
            try await host.stop()
        }
    }

    /// Answers the requests of a host, until it ends.
    @MainActor private static func answer() async throws {
        let peer = Peer(writing: OutputStream(descriptor: .standardOutput)) { method in
            switch method {
            case "initialize": ["protocolVersion": "2025-06-18"]
            case "ping": [String: String]()
            default: throw RemoteError(code: -32601, message: "Method not found")
            }
        }
        try await peer.run(reading: InputStream(descriptor: .standardInput).messages(.delimiter()))
    }
}
