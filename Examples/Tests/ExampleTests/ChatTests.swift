import Dispatch
import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

/// What `chat` passes on, and to whom.
@Suite struct ChatTests {
    /// Runs a server, has `body` talk to it, and asks it to end.
    private func chatting(
        _ arguments: [String] = [], _ body: @escaping @Sendable (_ announcement: String) throws -> Void
    ) async throws -> Outcome {
        try await running("chat", ["--port", "0"] + arguments) { child in
            let announcement = child.readOutput(lines: 1)
            try body(announcement)
            child.send(SIGTERM)
            return announcement + child.readOutput()
        }
    }

    private func isWritable(_ descriptor: FileDescriptor) -> Bool {
        var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
        return poll(&request, 1, 0) == 1
    }

    /// A guest who has heard the welcome.
    private func guest(_ announcement: String, _ number: Int) throws -> Caller {
        let caller = try Caller(announcement)
        #expect(try caller.hearLine() == "* Welcome, guest\(number). There are /nick NAME, /who and /quit.")
        return caller
    }

    @Test func `what one says the others hear, and who comes and goes`() async throws {
        let outcome = try await chatting { announcement in
            let first = try guest(announcement, 1)
            let second = try guest(announcement, 2)
            #expect(try first.hearLine() == "* guest2 has come.")
            try second.say("hello\r\nthere\n")
            #expect(try first.hearLine() == "guest2: hello")
            #expect(try first.hearLine() == "guest2: there")
            try first.say("/quit\nnot heard\n")
            #expect(try first.hearLine() == nil)
            #expect(try second.hearLine() == "* guest1 has gone.")
            try second.say("/who\n")
            #expect(try second.hearLine() == "* Here: guest2")
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test func `names are changed, unless they are taken or no names`() async throws {
        _ = try await chatting { announcement in
            let first = try guest(announcement, 1)
            let second = try guest(announcement, 2)
            #expect(try first.hearLine() == "* guest2 has come.")
            try first.say("/nick ada\n")
            #expect(try first.hearLine() == "* guest1 is now ada.")
            #expect(try second.hearLine() == "* guest1 is now ada.")
            try second.say("/nick ada\n/nick no-name\n/nick\n/dance now\n/who\n")
            #expect(try second.hearLine() == "* ada is taken.")
            #expect(try second.hearLine() == "* There is no /nick no-name.")
            #expect(try second.hearLine() == "* There is no /nick.")
            #expect(try second.hearLine() == "* There is no /dance now.")
            #expect(try second.hearLine() == "* Here: ada, guest2")
        }
    }

    @Test func `a long line is cut, and controls and what is no text are taken out`() async throws {
        _ = try await chatting { announcement in
            let first = try guest(announcement, 1)
            let second = try guest(announcement, 2)
            #expect(try first.hearLine() == "* guest2 has come.")
            try second.say(String(repeating: "x", count: 100_000) + "\n")
            #expect(try first.hearLine() == "guest2: " + String(repeating: "x", count: 1000))
            try second.descriptor.writeAll([0x1B, 0x63, 0xFF, 0x0A])
            #expect(try first.hearLine() == "guest2: c\u{FFFD}")
        }
    }

    @Test func `who does not listen is sent away, and the others go on`() async throws {
        _ = try await chatting(["--patience", "0.5"]) { announcement in
            let first = try guest(announcement, 1)
            let deaf = try guest(announcement, 2)
            let third = try guest(announcement, 3)
            #expect(try first.hearLine() == "* guest2 has come.")
            #expect(try first.hearLine() == "* guest3 has come.")
            let block = String(repeating: String(repeating: "x", count: 999) + "\n", count: 20)
            var (heard, lineCount) = ("", 0)
            repeat {
                heard = String(heard.suffix(100))
                try first.say(block)
                lineCount += 20
                while lineCount > 0 {
                    let text = String(decoding: try third.hearSome(), as: UTF8.self)
                    heard += text
                    lineCount -= text.count { $0 == "\n" }
                }
            } while !heard.contains("\n* guest2 has gone, for not listening.\n")
            withExtendedLifetime(deaf) {}
        }
    }

    @Test func `a slow guest holds up the speakers, and hears every line`() async throws {
        let lineCount = 12_000
        _ = try await chatting { announcement in
            let speaker = try guest(announcement, 1)
            let listener = try guest(announcement, 2)
            let speaking = DispatchGroup()
            DispatchQueue(label: "speaker").async(group: speaking) {
                for _ in 0..<lineCount / 20 {
                    try? speaker.say(String(repeating: String(repeating: "x", count: 999) + "\n", count: 20))
                }
            }
            // Until the speaker is held up, or has said all.
            while isWritable(speaker.descriptor), speaking.wait(timeout: .now()) == .timedOut {
                sched_yield()
            }
            let bytes = try listener.hear(bytes: lineCount * "guest1: \n".utf8.count + lineCount * 999)
            #expect(bytes.count { $0 == UInt8(ascii: "\n") } == lineCount)
            speaking.wait()
        }
    }

    @Test func `a guest that asks much at once, and reads later, gets every answer`() async throws {
        _ = try await chatting { announcement in
            let names = (1...4).map { String(repeating: "\($0)", count: 20) }
            let callers = try (1...4).map { try guest(announcement, $0) }
            for (caller, name) in zip(callers, names) {
                try caller.say("/nick \(name)\n")
                while try caller.hearLine() != "* guest\(name.prefix(1)) is now \(name)." {}
            }
            // One read of this is answered by more than the outbox should hold, and all of it by a multiple.
            try callers[0].say(String(repeating: "/who\n", count: 5_000))
            var answers = 0
            while answers < 5_000, let line = try callers[0].hearLine() {
                if line == "* Here: " + names.joined(separator: ", ") { answers += 1 }
            }
            #expect(answers == 5_000)
        }
    }

    @Test func `when the room closes everybody is told`() async throws {
        let outcome = try await running("chat", ["--port", "0"]) { child in
            let announcement = child.readOutput(lines: 1)
            let callers = [try guest(announcement, 1), try guest(announcement, 2)]
            #expect(try callers[0].hearLine() == "* guest2 has come.")
            child.send(SIGINT)
            for caller in callers {
                #expect(try caller.hearLine() == "* The room closes.")
                #expect(try caller.hearLine() == nil)
            }
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
    }
}
