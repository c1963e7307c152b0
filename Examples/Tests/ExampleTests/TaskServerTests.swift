import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import SystemPackage
import Testing

/// The servers that are written as tasks keep the promises of those with callbacks.
@Suite struct TaskServerTests {
    /// Starts a server, calls `body` once it listens, and ends it with `signal`.
    private func withServer(
        _ program: String, signal: CInt = SIGTERM,
        _ body: @escaping @Sendable (_ firstLine: String, Child) throws -> Void
    ) async throws -> Outcome {
        try await run(program, ["0"]) { child in
            let firstLine = child.readOutput(lines: 1)
            try body(firstLine, child)
            child.send(signal)
            return firstLine + child.readOutput()
        }
    }

    // MARK: Echo

    private static let echoServers = ["echo-tasks", "echo-service"]

    @Test(arguments: echoServers + ["chat-tasks"], [SIGINT, SIGTERM])
    func `a signal ends a server without clients`(program: String, signal: CInt) async throws {
        let outcome = try await withServer(program, signal: signal) { _, _ in }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test(arguments: echoServers + ["chat-tasks"], ["none", "65536", "-1"])
    func `a port that is none is an error of usage`(program: String, port: String) async throws {
        let outcome = try await run(program, [port])
        #expect(outcome.ending == .exit(EX_USAGE))
        #expect(outcome.errors == "\(program): '\(port)' is not valid. Usage: \(program) [PORT]\n")
    }

    @Test(arguments: echoServers + ["chat-tasks"])
    func `a port that is in use is an error with a sentence`(program: String) async throws {
        let other = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let outcome = try await run(program, ["\(other.localAddress.port ?? 0)"])
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors.hasPrefix("\(program): "))
        #expect(outcome.errors.contains("Address already in use"))
        #expect(outcome.errors.split(separator: "\n").count == 1)
    }

    @Test(arguments: echoServers + ["chat-tasks", "line-actor"])
    func `standard output that is full is an error`(program: String) async throws {
        let arguments = program == "line-actor" ? [] : ["0"]
        let outcome = try await run(program, arguments, output: .path("/dev/full"))
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "\(program): standard output: No space left on device\n")
    }

    @Test(arguments: echoServers)
    func `each client receives what it sent`(program: String) async throws {
        let outcome = try await withServer(program) { firstLine, _ in
            let clients = try (0..<20).map { _ in try TestClient(firstLine) }
            for (index, client) in clients.enumerated() { try client.send("hello \(index)\n") }
            for (index, client) in clients.enumerated() {
                #expect(try client.receiveLine() == "hello \(index)")
            }
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test(arguments: echoServers)
    func `a client that reads late receives its whole echo`(program: String) async throws {
        let count = 20_000_000
        let outcome = try await withServer(program) { firstLine, _ in
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
    }

    @Test(arguments: echoServers)
    func `after a signal a server refuses new connections and serves open ones`(program: String) async throws
    {
        let outcome = try await run(program, ["0"]) { child in
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
    }

    @Test func `a second signal ends a server at once`() async throws {
        let outcome = try await run("echo-tasks", ["0"]) { child in
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

    // MARK: An actor on its own thread

    @Test func `an actor counts the lines of standard input on its thread`() async throws {
        let outcome = try await run("line-actor", [], input: .pipe) { child in
            child.write(String(repeating: "line\n", count: 10_000))
            child.closeInput()
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.output.split(separator: "\n").last == "10000 lines")
    }

    // MARK: Chat

    /// Connects a client and receives its welcome line.
    private func guest(_ firstLine: String, _ number: Int) throws -> TestClient {
        let client = try TestClient(firstLine)
        #expect(try client.receiveLine() == "* Welcome, guest\(number). Commands: /nick NAME, /who, /quit.")
        return client
    }

    @Test func `guests receive the lines of the others, and who joined and left`() async throws {
        let outcome = try await withServer("chat-tasks") { firstLine, _ in
            let first = try guest(firstLine, 1)
            let second = try guest(firstLine, 2)
            #expect(try first.receiveLine() == "* guest2 joined.")
            try second.send("hello\r\nthere\n/nick ada\n")
            #expect(try first.receiveLine() == "guest2: hello")
            #expect(try first.receiveLine() == "guest2: there")
            #expect(try first.receiveLine() == "* guest2 is now known as ada.")
            try first.send("/quit\nnot sent\n")
            #expect(try first.receiveLine() == nil)
            #expect(try second.receiveLine() == "* guest2 is now known as ada.")
            #expect(try second.receiveLine() == "* guest1 left.")
            try second.send("/dance now\n/who\n")
            #expect(try second.receiveLine() == "* Unknown command: /dance now")
            #expect(try second.receiveLine() == "* Users: ada")
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test func `a slow guest blocks the senders, and receives every line`() async throws {
        let lineCount = 6_000
        _ = try await withServer("chat-tasks") { firstLine, _ in
            let sender = try guest(firstLine, 1)
            let receiver = try guest(firstLine, 2)
            let sending = DispatchGroup()
            DispatchQueue(label: "sender").async(group: sending) {
                for _ in 0..<lineCount / 20 {
                    try? sender.send(String(repeating: String(repeating: "x", count: 999) + "\n", count: 20))
                }
            }
            // Wait until the sender blocks, or has sent everything.
            var state = pollfd(fd: sender.descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
            while poll(&state, 1, 0) > 0, sending.wait(timeout: .now()) == .timedOut { sched_yield() }
            let bytes = try receiver.receive(count: lineCount * "guest1: \n".utf8.count + lineCount * 999)
            #expect(bytes.count { $0 == UInt8(ascii: "\n") } == lineCount)
            sending.wait()
        }
    }

    @Test func `a signal notifies all guests and disconnects them`() async throws {
        let outcome = try await run("chat-tasks", ["0"]) { child in
            let firstLine = child.readOutput(lines: 1)
            let clients = [try guest(firstLine, 1), try guest(firstLine, 2)]
            #expect(try clients[0].receiveLine() == "* guest2 joined.")
            child.send(SIGINT)
            for client in clients {
                #expect(try client.receiveLine() == "* The server is shutting down.")
                #expect(try client.receiveLine() == nil)
            }
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
    }
}
