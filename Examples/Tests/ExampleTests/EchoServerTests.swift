import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

@Suite struct EchoServerTests {
    /// Starts a server, calls `body` once it listens, and ends it with `signal`.
    private func withServer(
        _ options: [String] = [], signal: CInt = SIGTERM,
        _ body: @escaping @Sendable (_ firstLine: String, Child) throws -> Void
    ) async throws -> Outcome {
        try await run("echo-server", ["--port", "0", "--json"] + options) { child in
            let firstLine = child.readOutput(lines: 1)
            try body(firstLine, child)
            child.send(signal)
            return firstLine + child.readOutput()
        }
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func `a signal ends a server without clients`(signal: CInt) async throws {
        let outcome = try await withServer(signal: signal) { _, _ in }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
        #expect(
            outcome.keys == [
                "connections", "peak_connections", "aborted_connections", "messages", "bytes", "seconds",
            ])
        #expect(outcome["connections"] == 0)
    }

    @Test(arguments: ["1", "2"])
    func `each client receives what it sent, with one thread and with several`(threads: String) async throws {
        let outcome = try await withServer(["--threads", threads]) { firstLine, _ in
            let clients = try (0..<20).map { _ in try TestClient(firstLine) }
            for (index, client) in clients.enumerated() { try client.send("hello \(index)\n") }
            for (index, client) in clients.enumerated() {
                #expect(try client.receiveLine() == "hello \(index)")
            }
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["connections"] == 20)
        #expect(outcome["peak_connections"] == 20)
        #expect(outcome["aborted_connections"] == 0)
        #expect(outcome["bytes"] == 170)
        #expect(try #require(outcome["messages"]) >= 20)
    }

    @Test func `a client that reads late receives its whole echo`() async throws {
        let count = 20_000_000
        let outcome = try await withServer { firstLine, _ in
            let client = try TestClient(firstLine)
            let sender = Task.detached {
                try client.send(String(repeating: "echo", count: count / 4))
                client.shutDownWrites()
            }
            // The bytes exceed all buffers, so the server stops reading before the client has sent everything.
            var state = pollfd(fd: client.descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
            while poll(&state, 1, 0) > 0 { sched_yield() }
            #expect(try client.receive(count: .max).count == count)
            _ = sender
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["bytes"] == Double(count))
    }

    @Test func `a server on a Unix-domain path removes the path when it ends`() async throws {
        let folder = TemporaryFolder()
        defer { withExtendedLifetime(folder) {} }
        let path = folder.path("socket")
        let outcome = try await withServer(["--unix", path]) { firstLine, _ in
            #expect(firstLine == "Listening on unix:\(path)\n")
            let client = try TestClient(firstLine)
            try client.send("hello\n")
            #expect(try client.receiveLine() == "hello")
        }
        #expect(outcome.ending == .exit(0))
        #expect(access(path, F_OK) == -1)
    }

    @Test func `after a signal the server refuses new connections and serves open ones`() async throws {
        let outcome = try await run("echo-server", ["--port", "0", "--json", "--threads", "2"]) { child in
            let firstLine = child.readOutput(lines: 1)
            let client = try TestClient(firstLine)
            try client.send("before\n")
            #expect(try client.receiveLine() == "before")
            child.send(SIGTERM)
            while (try? TestClient(firstLine)) != nil { sched_yield() }
            try client.send("after\n")
            #expect(try client.receiveLine() == "after")
            client.shutDownWrites()
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["aborted_connections"] == 0)
    }

    @Test func `connections that are open after the drain timeout are closed`() async throws {
        let outcome = try await run("echo-server", ["--port", "0", "--json", "--drain-seconds", "0.1"]) {
            child in
            let client = try TestClient(child.readOutput(lines: 1))
            try client.send("a\n")
            #expect(try client.receiveLine() == "a")
            child.send(SIGTERM)
            #expect(try client.receiveLine() == nil)
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["aborted_connections"] == 1)
        #expect(try #require(outcome["seconds"]) >= 0.1)
    }

    @Test func `a second signal ends a server at once`() async throws {
        let outcome = try await run("echo-server", ["--port", "0", "--threads", "2"]) { child in
            let firstLine = child.readOutput(lines: 1)
            let client = try TestClient(firstLine)
            // Signals may coalesce, so send them until the process has ended.
            while !child.hasEnded {
                child.send(SIGINT)
                sched_yield()
            }
            return firstLine + "\(client.descriptor.rawValue > 0)"
        }
        #expect(outcome.ending == .signal(SIGINT))
    }

    @Test func `a port in use is reported as an error`() async throws {
        _ = try await withServer { firstLine, _ in
            let port = try #require(firstLine.dropLast().split(separator: ":").last)
            let second = try Child("echo-server", ["--port", String(port)])
            #expect(second.readErrors() == "Error: listen at 127.0.0.1:\(port): Address already in use\n")
            #expect(second.wait() == .exit(1))
        }
    }

    @Test(arguments: [
        ["--host", "nowhere"], ["--threads", "0"], ["--threads", "2", "--unix", "/tmp/a"],
        ["--drain-seconds", "-1"], ["--unix", ""],
    ])
    func `invalid arguments are rejected`(arguments: [String]) async throws {
        #expect(try await run("echo-server", arguments).ending != .exit(0))
    }
}
