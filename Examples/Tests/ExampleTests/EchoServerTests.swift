import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

/// What `echo-server` sends back, and how it ends.
@Suite struct EchoServerTests {
    /// Runs a server, and has `body` deal with it from when it listens; then asks it to end and waits for
    /// that.
    private func serving(
        _ options: [String] = [], signal: CInt = SIGTERM,
        _ body: @escaping @Sendable (_ announcement: String, Child) throws -> Void
    ) async throws -> Outcome {
        try await running("echo-server", ["--port", "0", "--json"] + options) { child in
            let announcement = child.readOutput(lines: 1)
            try body(announcement, child)
            child.send(signal)
            return announcement + child.readOutput()
        }
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func `a signal ends a server without clients`(signal: CInt) async throws {
        let outcome = try await serving(signal: signal) { _, _ in }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
        #expect(
            outcome.keys == [
                "connections", "peak_connections", "cut_connections", "messages", "bytes", "seconds",
            ])
        #expect(outcome["connections"] == 0)
    }

    @Test(arguments: ["1", "2"])
    func `clients get back what they send, whichever thread serves them`(threads: String) async throws {
        let outcome = try await serving(["--threads", threads]) { announcement, _ in
            let callers = try (0..<20).map { _ in try Caller(announcement) }
            for (index, caller) in callers.enumerated() { try caller.say("hello \(index)\n") }
            for (index, caller) in callers.enumerated() { #expect(try caller.hearLine() == "hello \(index)") }
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["connections"] == 20)
        #expect(outcome["peak_connections"] == 20)
        #expect(outcome["cut_connections"] == 0)
        #expect(outcome["bytes"] == 170)
        #expect(try #require(outcome["messages"]) >= 20)
    }

    @Test func `a client that does not read its echo gets all of it once it does`() async throws {
        let count = 20_000_000
        let outcome = try await serving { announcement, _ in
            let caller = try Caller(announcement)
            let sender = Task.detached {
                try caller.say(String(repeating: "echo", count: count / 4))
                caller.finish()
            }
            // More than all buffers hold: the server has stopped reading before the client has sent it all.
            var state = pollfd(fd: caller.descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
            while poll(&state, 1, 0) > 0 { sched_yield() }
            #expect(try caller.hear(bytes: .max).count == count)
            _ = sender
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["bytes"] == Double(count))
    }

    @Test func `a Unix-domain path is served, and gone in the end`() async throws {
        let folder = TemporaryFolder()
        defer { withExtendedLifetime(folder) {} }
        let path = folder.path("socket")
        let outcome = try await serving(["--unix", path]) { announcement, _ in
            #expect(announcement == "Listening on unix:\(path)\n")
            let caller = try Caller(announcement)
            try caller.say("hello\n")
            #expect(try caller.hearLine() == "hello")
        }
        #expect(outcome.ending == .exit(0))
        #expect(access(path, F_OK) == -1)
    }

    @Test func `after a signal nobody is accepted, and those who are there may finish`() async throws {
        let outcome = try await running("echo-server", ["--port", "0", "--json", "--threads", "2"]) { child in
            let announcement = child.readOutput(lines: 1)
            let caller = try Caller(announcement)
            try caller.say("before\n")
            #expect(try caller.hearLine() == "before")
            child.send(SIGTERM)
            while (try? Caller(announcement)) != nil { sched_yield() }
            try caller.say("after\n")
            #expect(try caller.hearLine() == "after")
            caller.finish()
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["cut_connections"] == 0)
    }

    @Test func `those who do not leave are cut off`() async throws {
        let outcome = try await running("echo-server", ["--port", "0", "--json", "--drain-seconds", "0.1"]) {
            child in
            let caller = try Caller(child.readOutput(lines: 1))
            try caller.say("a\n")
            #expect(try caller.hearLine() == "a")
            child.send(SIGTERM)
            #expect(try caller.hearLine() == nil)
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["cut_connections"] == 1)
        #expect(try #require(outcome["seconds"]) >= 0.1)
    }

    @Test func `a second signal ends a server at once`() async throws {
        let outcome = try await running("echo-server", ["--port", "0", "--threads", "2"]) { child in
            let announcement = child.readOutput(lines: 1)
            let caller = try Caller(announcement)
            // One signal after another: which is the second to be noticed shows only in the end.
            while !child.hasEnded {
                child.send(SIGINT)
                sched_yield()
            }
            return announcement + "\(caller.descriptor.rawValue > 0)"
        }
        #expect(outcome.ending == .signal(SIGINT))
    }

    @Test func `a port that is taken is an error, in words`() async throws {
        _ = try await serving { announcement, _ in
            let port = try #require(announcement.dropLast().split(separator: ":").last)
            let second = try Child("echo-server", ["--port", String(port)])
            #expect(second.readErrors() == "Error: Address already in use\n")
            #expect(second.wait() == .exit(1))
        }
    }

    @Test(arguments: [
        ["--host", "nowhere"], ["--threads", "0"], ["--threads", "2", "--unix", "/tmp/a"],
        ["--drain-seconds", "-1"], ["--unix", ""],
    ])
    func `an argument without sense is refused`(arguments: [String]) async throws {
        #expect(try await running("echo-server", arguments).ending != .exit(0))
    }
}
