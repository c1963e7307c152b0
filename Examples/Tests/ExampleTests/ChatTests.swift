import Dispatch
import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

@Suite struct ChatTests {
    /// Runs a server, calls `body` with its first line of output, and ends it with SIGTERM.
    private func withServer(
        _ arguments: [String] = [], _ body: @escaping @Sendable (_ firstLine: String) throws -> Void
    ) async throws -> Outcome {
        try await run("chat", ["--port", "0"] + arguments) { child in
            let firstLine = child.readOutput(lines: 1)
            try body(firstLine)
            child.send(SIGTERM)
            return firstLine + child.readOutput()
        }
    }

    private func isWritable(_ descriptor: FileDescriptor) -> Bool {
        var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
        return poll(&request, 1, 0) == 1
    }

    /// Connects a client and receives its welcome line.
    private func guest(_ firstLine: String, _ number: Int) throws -> TestClient {
        let client = try TestClient(firstLine)
        #expect(try client.receiveLine() == "* Welcome, guest\(number). Commands: /nick NAME, /who, /quit.")
        return client
    }

    @Test func `guests receive the lines of the others, and who joined and left`() async throws {
        let outcome = try await withServer { firstLine in
            let first = try guest(firstLine, 1)
            let second = try guest(firstLine, 2)
            #expect(try first.receiveLine() == "* guest2 joined.")
            try second.send("hello\r\nthere\n")
            #expect(try first.receiveLine() == "guest2: hello")
            #expect(try first.receiveLine() == "guest2: there")
            try first.send("/quit\nnot sent\n")
            #expect(try first.receiveLine() == nil)
            #expect(try second.receiveLine() == "* guest1 left.")
            try second.send("/who\n")
            #expect(try second.receiveLine() == "* Users: guest2")
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test func `a guest can change its name, unless the new name is invalid or in use`() async throws {
        _ = try await withServer { firstLine in
            let first = try guest(firstLine, 1)
            let second = try guest(firstLine, 2)
            #expect(try first.receiveLine() == "* guest2 joined.")
            try first.send("/nick ada\n")
            #expect(try first.receiveLine() == "* guest1 is now known as ada.")
            #expect(try second.receiveLine() == "* guest1 is now known as ada.")
            try second.send("/nick ada\n/nick no-name\n/nick\n/dance now\n/who\n")
            #expect(try second.receiveLine() == "* The name ada is already in use.")
            #expect(try second.receiveLine() == "* Unknown command: /nick no-name")
            #expect(try second.receiveLine() == "* Unknown command: /nick")
            #expect(try second.receiveLine() == "* Unknown command: /dance now")
            #expect(try second.receiveLine() == "* Users: ada, guest2")
        }
    }

    @Test func `long lines are truncated, control characters removed, and invalid UTF-8 repaired`()
        async throws
    {
        _ = try await withServer { firstLine in
            let first = try guest(firstLine, 1)
            let second = try guest(firstLine, 2)
            #expect(try first.receiveLine() == "* guest2 joined.")
            try second.send(String(repeating: "x", count: 100_000) + "\n")
            #expect(try first.receiveLine() == "guest2: " + String(repeating: "x", count: 1000))
            try second.descriptor.writeAll([0x1B, 0x63, 0xFF, 0x0A])
            #expect(try first.receiveLine() == "guest2: c\u{FFFD}")
        }
    }

    @Test func `a guest that does not read is disconnected, and the others continue`() async throws {
        _ = try await withServer(["--write-timeout", "0.5"]) { firstLine in
            let first = try guest(firstLine, 1)
            let stalled = try guest(firstLine, 2)
            let third = try guest(firstLine, 3)
            #expect(try first.receiveLine() == "* guest2 joined.")
            #expect(try first.receiveLine() == "* guest3 joined.")
            let block = String(repeating: String(repeating: "x", count: 999) + "\n", count: 20)
            var (received, lineCount) = ("", 0)
            repeat {
                received = String(received.suffix(100))
                try first.send(block)
                lineCount += 20
                while lineCount > 0 {
                    let text = String(decoding: try third.receive(), as: UTF8.self)
                    received += text
                    lineCount -= text.count { $0 == "\n" }
                }
            } while !received.contains("\n* guest2 left (write timeout).\n")
            withExtendedLifetime(stalled) {}
        }
    }

    @Test func `a slow guest blocks the senders, and receives every line`() async throws {
        let lineCount = 12_000
        _ = try await withServer { firstLine in
            let sender = try guest(firstLine, 1)
            let receiver = try guest(firstLine, 2)
            let sending = DispatchGroup()
            DispatchQueue(label: "sender").async(group: sending) {
                for _ in 0..<lineCount / 20 {
                    try? sender.send(String(repeating: String(repeating: "x", count: 999) + "\n", count: 20))
                }
            }
            // Wait until the sender blocks, or has sent everything.
            while isWritable(sender.descriptor), sending.wait(timeout: .now()) == .timedOut {
                sched_yield()
            }
            let bytes = try receiver.receive(count: lineCount * "guest1: \n".utf8.count + lineCount * 999)
            #expect(bytes.count { $0 == UInt8(ascii: "\n") } == lineCount)
            sending.wait()
        }
    }

    @Test func `a guest that sends many commands before it reads receives every reply`() async throws {
        _ = try await withServer { firstLine in
            let names = (1...4).map { String(repeating: "\($0)", count: 20) }
            let clients = try (1...4).map { try guest(firstLine, $0) }
            for (client, name) in zip(clients, names) {
                try client.send("/nick \(name)\n")
                while try client.receiveLine() != "* guest\(name.prefix(1)) is now known as \(name)." {}
            }
            // The replies exceed the high-water mark of the write buffer.
            try clients[0].send(String(repeating: "/who\n", count: 5_000))
            var replies = 0
            while replies < 5_000, let line = try clients[0].receiveLine() {
                if line == "* Users: " + names.joined(separator: ", ") { replies += 1 }
            }
            #expect(replies == 5_000)
        }
    }

    @Test func `a signal notifies all guests and disconnects them`() async throws {
        let outcome = try await run("chat", ["--port", "0"]) { child in
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
