import ExampleSupport
import Glibc
import Reactor
import SystemPackage

/// Children that are servers, and the conversations with them.
@MainActor final class Host {
    private struct Server {
        let process: ChildProcess
        let peer: Peer
        let receive: @MainActor () async -> Void
    }

    private var servers: [Server] = []
    private let clock = RunLoop.main.clock()
    private let executable: String
    private let polls: Bool

    /// - Parameter polls: Whether to ask each child's output every 10 ms, as a program without an event loop does.
    init(executable: String, polls: Bool) { (self.executable, self.polls) = (executable, polls) }

    /// Starts `count` servers, each of which says its name, and returns when all have.
    func start(_ count: Int, in group: inout ThrowingDiscardingTaskGroup<any Error>) async throws {
        let start = clock.now
        for _ in 0..<count {
            let server = try spawn()
            servers.append(server)
            group.addTask { await server.receive() }
        }
        try await withThrowingDiscardingTaskGroup { group in
            for server in servers {
                group.addTask {
                    _ = try await server.peer.request("initialize", returning: [String: String].self)
                    try await server.peer.notify("notifications/initialized")
                }
            }
        }
        MainProgram.printLine("\(count) servers have started in \(clock.now - start)")
    }

    private func spawn() throws -> Server {
        var configuration = ChildProcess.Configuration(
            executable, ["--serve"], standardInput: .stream, standardOutput: .stream)
        guard polls else {
            let child = try ChildProcess.spawn(configuration)
            let (output, peer) = (child.standardOutput!, Peer(writing: child.standardInput!))
            return Server(process: child.process, peer: peer) {
                try? await peer.run(reading: output.messages(.delimiter()))
            }
        }
        let pipe = try FileDescriptor.pipe()
        configuration.standardOutput = .descriptor(pipe.writeEnd)
        let child = try ChildProcess.spawn(configuration)
        try pipe.writeEnd.close()
        _ = fcntl(pipe.readEnd.rawValue, F_SETFL, O_NONBLOCK)
        let peer = Peer(writing: child.standardInput!)
        return Server(process: child.process, peer: peer) {
            try? await peer.run(reading: PolledLines(descriptor: pipe.readEnd))
            try? pipe.readEnd.close()
        }
    }

    /// Counts what the loop does while no server sends.
    func idle(for duration: Duration) async throws {
        let before = RunLoop.main.statistics
        try await clock.sleep(for: duration)
        let after = RunLoop.main.statistics
        MainProgram.printLine(
            "idle for \(duration): \(after.passes - before.passes) passes, "
                + "\((after.processorTime - before.processorTime) / .milliseconds(1)) ms of processor time")
    }

    /// Times requests to one server, one after the other, beside the others.
    func measure(rounds: Int) async throws {
        guard let peer = servers.first?.peer else { return }
        var durations: [Duration] = []
        for _ in 0..<rounds {
            let start = clock.now
            _ = try await peer.request("ping", returning: [String: String].self)
            durations.append(clock.now - start)
        }
        durations.sort()
        let (median, slow) = (durations[rounds / 2], durations[rounds * 99 / 100])
        MainProgram.printLine(
            "\(rounds) round trips: half within \(median / .microseconds(1)) µs, 99 % within \(slow / .microseconds(1)) µs"
        )
    }

    /// Kills a server while it answers, and asks the others.
    func killOne() async throws {
        guard servers.count > 1 else { return }
        let victim = servers.removeLast()
        try victim.process.send(.kill)
        let end = try await RunLoop.main.termination(of: victim.process)
        do {
            _ = try await victim.peer.request("ping", returning: [String: String].self)
        } catch is PeerHasEnded {
        } catch is IOError {
            // The end of its input has been found before that of its output.
        }
        for server in servers { _ = try await server.peer.request("ping", returning: [String: String].self) }
        MainProgram.printLine("a server was killed (\(end)), and \(servers.count) answer")
    }

    /// Ends the servers' input, which ends them.
    func stop() async throws {
        for server in servers { try await server.peer.finish() }
        for server in servers { _ = try await RunLoop.main.termination(of: server.process) }
    }
}
