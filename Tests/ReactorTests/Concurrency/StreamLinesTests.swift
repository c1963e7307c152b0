import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamLinesTests {
    static let text = (0..<20_000).map { "line \($0) \(String(repeating: "é", count: $0 % 50))" }
    private static let bytes = Array(text.joined(separator: "\n").utf8)

    /// What the lines are read from.
    private static let sources: [StreamKind] = [.pipe, .file]

    @Test(arguments: sources, TaskPlace.allCases)
    func `lines come in order, those of a file with progress`(source: StreamKind, place: TaskPlace)
        async throws
    {
        let (lines, counts) = try await place.run { _ in
            let fixture = try Fixture(source, Self.bytes)
            let sequence = fixture.input.lines
            var (lines, counts): ([String], [Int]) = ([], [])
            for try await line in sequence {
                lines.append(line)
                #expect(sequence.progress.expectedByteCount == (source == .file ? Self.bytes.count : nil))
                counts.append(sequence.progress.byteCount)
            }
            return (lines, counts)
        }
        #expect(lines == Self.text)
        #expect(counts == counts.sorted() && counts.last == Self.bytes.count)
    }

    @Test(arguments: sources, TaskPlace.allCases)
    func `lines that are not returned stay with the stream`(source: StreamKind, place: TaskPlace) async throws
    {
        try await place.run { _ in
            let fixture = try Fixture(source, Self.bytes)
            let input = fixture.input
            var lines: [String] = []
            // Leaves after ever more lines, at the ends of chunks too.
            var count = 1
            while lines.count < Self.text.count {
                let end = lines.count + count
                for try await line in input.lines {
                    lines.append(line)
                    if lines.count == end { break }
                }
                count = count * 3 / 2 + 1
            }
            #expect(lines == Self.text)
            #expect(try await input.readChunk() == nil)
        }
    }

    @Test(arguments: sources)
    func `a line that is not UTF-8, too long or not ended stays with the stream`(source: StreamKind)
        async throws
    {
        let bytes = Array("one\ntwo\n\u{1}three\nfour".utf8).map { $0 == 1 ? 0xFF : $0 }
        let fixture = try Fixture(source, bytes)
        let input = fixture.input
        var lines: [String] = []
        let error = await thrownError {
            for try await line in input.lines(text: .fail) { lines.append(line) }
        }
        #expect((error as? InvalidText)?.offset == 8)
        #expect(lines == ["one", "two"])
        let second = await thrownError { for try await line in input.lines(limit: 5) { lines.append(line) } }
        #expect(second is LineFramer.LineTooLong)
        for try await line in input.lines {
            lines.append(line)
            break
        }
        #expect(lines == ["one", "two", "\u{FFFD}three"])
        #expect(try await input.read(exactly: 4) == Array("four".utf8))
    }

    @Test func `lines that are split and left lose nothing`() async throws {
        let feed = try TestPipe("abcde")
        let input = Carrier(feed.makeInput())
        let first = Task.detached {
            for try await line in input.value.lines(limit: 4, overflow: .split) { return line }
            return ""
        }
        // The second piece must come when the first is waiting to be one.
        await yieldUntil { feed.isEmpty }
        feed.put("fghijklmnop\nqrs\n")
        feed.closeWriteEnd()
        var rest = try await first.value
        for try await chunk in input.value.chunks { rest += String(bytes: chunk) }
        #expect(rest == "abcdefghijklmnop\nqrs\n")
    }

    @Test func `a task that is slower than the file lets its loop make passes`() async throws {
        let line = String(repeating: "x", count: 65_000)
        let file = try TemporaryFile(Array(repeating: line, count: 40).joined(separator: "\n"))
        try await TaskPlace.loopActor.run { loop in
            let hasPassed = Shared<Bool?>(nil)
            for try await line in InputStream(path: file.path).lines {
                if hasPassed.value == nil {
                    hasPassed.value = false
                    loop.perform { hasPassed.value = true }
                }
                #expect(line.utf8.reduce(0) { $0 + Int($1) } == 65_000 * 120)
            }
            #expect(hasPassed.value == true)
        }
    }

    @Test func `a task that reads the lines of a file delays its loop by a few chunks at most`()
        async throws
    {
        let line = String(repeating: "x", count: 65_000)
        let file = try TemporaryFile(Array(repeating: line, count: 300).joined(separator: "\n"))
        try await TaskPlace.loopActor.run { loop in
            let count = Shared(0)
            loop.perform { loop.observe(.beforeTimers) { _ in count.value = 0 } }
            var most = 0
            for try await line in InputStream(path: file.path).lines {
                // Takes longer than reading ahead.
                #expect(line.utf8.reduce(0) { $0 + Int($1) } == 65_000 * 120)
                count.value += 1
                most = max(most, count.value)
            }
            #expect(most <= 40)
        }
    }

    @Test(arguments: ["/nonexistent": Errno.noSuchFileOrDirectory, "/proc/self/mem": .ioError])
    func `a file that cannot be read is an error`(path: String, errno: Errno) async throws {
        let error = await thrownError { for try await _ in InputStream(path: FilePath(path)).lines {} }
        #expect(error?.errno == errno)
    }

    @Test(arguments: sources)
    func `closing the stream ends its lines`(source: StreamKind) async throws {
        let fixture = try Fixture(source, source == .file ? Self.bytes : Array("one\n".utf8))
        let error = await thrownError { for try await _ in fixture.input.lines { fixture.input.close() } }
        #expect(error?.errno == .badFileDescriptor)
    }
}
