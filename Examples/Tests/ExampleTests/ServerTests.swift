import ExampleTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// The servers, written with callbacks or as tasks.
@Suite(.runLoop) struct ServerTests {
    /// The arguments of each server for a free port.
    private static let arguments = [
        "echo-server": ["--port", "0", "--json"], "echo-tasks": ["0"], "echo-service": ["0"],
        "chat": ["--port", "0"], "chat-tasks": ["0"],
    ]
    private static let all = arguments.keys.sorted()
    private static let (echoes, chats) = (
        all.filter { $0.hasPrefix("echo") }, all.filter { $0.hasPrefix("chat") }
    )

    /// Runs a server, calls `body` once it listens, and ends it with `signal`.
    private func withServer(
        _ program: String, _ options: [String] = [], signal: CInt = SIGTERM, output: Child.End = .pipe,
        _ body: (_ firstLine: String, Child) throws -> Void = { _, _ in }
    ) throws -> Outcome {
        try run(program, Self.arguments[program]! + options, output: output) { child in
            let firstLine = child.readOutput(lines: 1)
            try body(firstLine, child)
            child.send(signal)
            return firstLine + child.readOutput()
        }
    }

    // MARK: Ends

    @Test(arguments: all, [SIGINT, SIGTERM])
    func `a signal ends a server without clients`(program: String, signal: CInt) throws {
        let outcome = try withServer(program, signal: signal)
        #expect(outcome.isClean)
        guard program == "echo-server" else { return }
        let counts: Set = [
            "connections", "peak_connections", "aborted_connections", "messages", "bytes", "seconds",
        ]
        #expect(outcome.keys == counts && outcome["connections"] == 0)
    }

    @Test(arguments: echoes)
    func `after a signal a server refuses new connections and serves open ones`(program: String) throws {
        let outcome = try withServer(program, program == "echo-server" ? ["--threads", "2"] : []) {
            firstLine, child in
            let client = try SocketPeer(firstLine)
            client.send("before\n")
            #expect(client.receiveLine() == "before")
            child.send(SIGTERM)
            waitUntil { (try? SocketPeer(firstLine)) == nil }
            client.send("after\n")
            #expect(client.receiveLine() == "after")
            client.shutDown()
            waitUntil { child.hasEnded }
        }
        #expect(outcome.ending == .exit(0))
    }

    @Test(arguments: ["echo-server", "echo-tasks"])
    func `a second signal ends a server at once`(program: String) throws {
        let outcome = try withServer(program) { firstLine, child in
            let client = try SocketPeer(firstLine)
            // Signals may coalesce, so send them until the process has ended.
            waitUntil {
                child.send(SIGINT)
                return child.hasEnded
            }
            withExtendedLifetime(client) {}
        }
        #expect(outcome.ending == .signal(SIGINT))
    }

    @Test func `connections that are open after the drain timeout are closed`() throws {
        let outcome = try withServer("echo-server", ["--drain-seconds", "0.05"]) { firstLine, child in
            let client = try SocketPeer(firstLine)
            client.send("a\n")
            #expect(client.receiveLine() == "a")
            child.send(SIGTERM)
            #expect(client.receiveLine() == nil)
            waitUntil { child.hasEnded }
        }
        #expect(outcome.ending == .exit(0) && outcome["aborted_connections"] == 1)
        #expect(try #require(outcome["seconds"]) >= 0.05)
    }

    // MARK: Errors

    @Test(arguments: all)
    func `a port that is in use is an error`(program: String) throws {
        let other = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let port = "\(try other.localAddress.port ?? 0)"
        let outcome = try run(program, Self.arguments[program]!.map { $0 == "0" ? port : $0 })
        #expect(outcome.failed("Address already in use") && outcome.errors.split(separator: "\n").count == 1)
    }

    // MARK: Echo

    @Test(arguments: echoes + ["echo-server --threads 2"])
    func `each client receives what it sent`(command: String) throws {
        let words = command.split(separator: " ").map(String.init)
        let outcome = try withServer(words[0], Array(words.dropFirst())) { firstLine, _ in
            let clients = try (0..<20).map { _ in try SocketPeer(firstLine) }
            for (index, client) in clients.enumerated() { client.send("hello \(index)\n") }
            for (index, client) in clients.enumerated() {
                #expect(client.receiveLine() == "hello \(index)")
            }
        }
        #expect(outcome.isClean)
        guard words[0] == "echo-server" else { return }
        let counts = ["connections", "peak_connections", "aborted_connections", "bytes"].map { outcome[$0] }
        #expect(counts == [20, 20, 0, 170] && outcome["messages"] ?? 0 >= 20)
    }

    @Test(arguments: echoes) func `a client that reads late receives its whole echo`(program: String) throws {
        let count = 20_000_000
        let outcome = try withServer(program) { firstLine, _ in
            let client = try SocketPeer(firstLine)
            let sender = try JoinableThread {
                client.send(String(repeating: "echo", count: count / 4))
                client.shutDown()
            }
            // The bytes exceed all buffers, so the server stops reading before the client has sent everything.
            waitUntil { !client.isWritable }
            #expect(client.receiveToEnd()?.count == count)
            sender.join()
        }
        #expect(outcome.isClean)
    }

    @Test func `a server on a Unix-domain path removes the path when it ends`() throws {
        let folder = TemporaryFolder()
        let path = folder.path("socket")
        let outcome = try withServer("echo-server", ["--unix", path]) { firstLine, _ in
            #expect(firstLine == "Listening on unix:\(path)\n")
            let client = try SocketPeer(firstLine)
            client.send("hello\n")
            #expect(client.receiveLine() == "hello")
        }
        #expect(outcome.ending == .exit(0) && access(path, F_OK) == -1)
    }

    // MARK: Chat

    /// Connects clients; each has received its welcome, and who joined after it.
    private func guests(_ count: Int, _ firstLine: String) throws -> [SocketPeer] {
        var guests: [SocketPeer] = []
        for number in 1...count {
            let client = try SocketPeer(firstLine)
            #expect(client.receiveLine()?.hasPrefix("* Welcome, guest\(number).") == true)
            for guest in guests { #expect(guest.receiveLine() == "* guest\(number) joined.") }
            guests.append(client)
        }
        return guests
    }

    @Test(arguments: chats)
    func `guests receive the lines of the others, and who joined, was renamed and left`(program: String)
        throws
    {
        let outcome = try withServer(program) { firstLine, _ in
            let clients = try guests(2, firstLine)
            let (first, second) = (clients[0], clients[1])
            second.send("hello\r\nthere\n/nick ada\n")
            for line in ["guest2: hello", "guest2: there", "* guest2 is now known as ada."] {
                #expect(first.receiveLine() == line)
            }
            first.send("/quit\nnot sent\n")
            #expect(first.receiveLine() == nil)
            second.send("/dance now\n/who\n")
            for line in ["* guest2 is now known as ada.", "* guest1 left."] {
                #expect(second.receiveLine() == line)
            }
            #expect(second.receiveLine() == "* Unknown command: /dance now")
            #expect(second.receiveLine() == "* Users: ada")
        }
        #expect(outcome.isClean)
    }

    @Test func `names and lines that are invalid are refused, cut or repaired`() throws {
        _ = try withServer("chat") { firstLine, _ in
            let clients = try guests(2, firstLine)
            clients[0].send("/nick ada\n")
            #expect(clients[1].receiveLine() == "* guest1 is now known as ada.")
            clients[1].send("/nick ada\n/nick no-name\n/nick\n/who\n")
            for name in ["ada is already in use.", "/nick no-name", "/nick", "ada, guest2"] {
                #expect(clients[1].receiveLine()?.hasSuffix(name) == true)
            }
            #expect(clients[0].receiveLine() == "* guest1 is now known as ada.")
            clients[1].send(String(repeating: "x", count: 100_000) + "\n")
            #expect(clients[0].receiveLine() == "guest2: " + String(repeating: "x", count: 1000))
            clients[1].send([0x1B, 0x63, 0xFF, 0x0A])
            #expect(clients[0].receiveLine() == "guest2: c\u{FFFD}")
        }
    }

    private static let block = String(repeating: String(repeating: "x", count: 999) + "\n", count: 20)

    @Test func `a guest that does not read is disconnected, and the others continue`() throws {
        _ = try withServer("chat", ["--write-timeout", "0.2"]) { firstLine, _ in
            let clients = try guests(3, firstLine)
            var (received, lineCount) = ("", 0)
            repeat {
                received = String(received.suffix(100))
                clients[0].send(Self.block)
                lineCount += 20
                while lineCount > 0 {
                    let text = String(decoding: clients[2].receive(upTo: 65_536) ?? [], as: UTF8.self)
                    received += text
                    lineCount -= text.count { $0 == "\n" }
                }
            } while !received.contains("\n* guest2 left (write timeout).\n")
        }
    }

    @Test(arguments: chats) func `a slow guest blocks the senders, and receives every line`(program: String)
        throws
    {
        let lineCount = 8_000
        _ = try withServer(program) { firstLine, _ in
            let clients = try guests(2, firstLine)
            let hasSent = Shared(false)
            let sender = try JoinableThread {
                for _ in 0..<lineCount / 20 { clients[0].send(Self.block) }
                hasSent.value = true
            }
            waitUntil { !clients[0].isWritable || hasSent.value }
            var rest = lineCount * ("guest1: \n".utf8.count + 999)
            while rest > 0, let bytes = clients[1].receive(upTo: min(rest, 65_536)), !bytes.isEmpty {
                rest -= bytes.count
            }
            #expect(rest == 0)
            sender.join()
        }
    }

    @Test(arguments: chats) func `a signal notifies all guests and disconnects them`(program: String) throws {
        let outcome = try withServer(program) { firstLine, child in
            let clients = try guests(2, firstLine)
            child.send(SIGINT)
            for client in clients {
                #expect(client.receiveLine() == "* The server is shutting down.")
                #expect(client.receiveLine() == nil)
            }
            waitUntil { child.hasEnded }
        }
        #expect(outcome.ending == .exit(0))
    }
}
