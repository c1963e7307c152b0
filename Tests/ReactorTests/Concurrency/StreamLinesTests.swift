import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamLinesTests {
    static let text = (0..<20_000).map { "line \($0) \(String(repeating: "é", count: $0 % 50))" }

    @Test(arguments: TaskPlace.allCases)
    func `lines of a pipe come in order`(place: TaskPlace) async throws {
        let lines = try await place.run { _ in
            let feed = try Feed()
            try feed.send(Array(Self.text.joined(separator: "\n").utf8))
            var lines: [String] = []
            for try await line in feed.makeStream().lines { lines.append(line) }
            return lines
        }
        #expect(lines == Self.text)
    }

    @Test(arguments: TaskPlace.allCases)
    func `lines of a file come in order, with progress`(place: TaskPlace) async throws {
        let bytes = Array(Self.text.joined(separator: "\n").utf8)
        let file = try TemporaryFile(bytes)
        let (lines, counts) = try await place.run { _ in
            let sequence = InputStream(path: file.path).lines
            var (lines, counts): ([String], [Int]) = ([], [])
            for try await line in sequence {
                lines.append(line)
                #expect(sequence.progress.expectedByteCount == bytes.count)
                counts.append(sequence.progress.byteCount)
            }
            return (lines, counts)
        }
        #expect(lines == Self.text)
        #expect(counts == counts.sorted())
        #expect(counts.last == bytes.count)
    }

    @Test(arguments: [true, false], TaskPlace.allCases)
    func `lines that are not returned stay with the stream`(isFile: Bool, place: TaskPlace) async throws {
        let text = Self.text.joined(separator: "\n")
        let file = try TemporaryFile(text)
        try await place.run { _ in
            let feed = try Feed()
            if !isFile { try feed.send(Array(text.utf8)) }
            let input = isFile ? InputStream(path: file.path) : feed.makeStream()
            var lines: [String] = []
            // Leaves after ever more lines, at the ends of chunks too.
            var count = 1
            while lines.count < Self.text.count {
                var left = count
                for try await line in input.lines {
                    lines.append(line)
                    left -= 1
                    if left == 0 { break }
                }
                count = count * 3 / 2 + 1
            }
            #expect(lines == Self.text)
            #expect(try await input.readChunk() == nil)
        }
    }

    @Test(arguments: [true, false])
    func `a line that has not ended stays with the stream`(isFile: Bool) async throws {
        let file = try TemporaryFile("one\ntwo")
        let feed = try Feed("one\ntwo")
        let input = isFile ? InputStream(path: file.path) : feed.makeStream()
        for try await line in input.lines {
            #expect(line == "one")
            break
        }
        #expect(try await input.read(exactly: 3) == Array("two".utf8))
    }

    @Test(arguments: [true, false], TaskPlace.allCases)
    func `lines that are cancelled at any moment lose nothing`(isFile: Bool, place: TaskPlace) async throws {
        let text = Self.text.joined(separator: "\n")
        let file = try TemporaryFile(text)
        let feed = try Feed()
        if !isFile { try feed.send(Array(text.utf8)) }
        try await withRunLoopThread(name: "races") { thread in
            let input = Carrier(isFile ? InputStream(path: file.path) : feed.makeStream())
            let lines = Shared<[String]>([])
            let isOver = Shared(false)
            var round = 0
            while !isOver.value {
                let task = place.start(on: thread) {
                    let error = await thrownError {
                        for try await line in input.value.lines { lines.update { $0.append(line) } }
                        isOver.value = true
                    }
                    #expect(error == nil || error is CancellationError)
                }
                for _ in 0..<round % 40 { await Task.yield() }
                round += 1
                task.cancel()
                try await task.value
            }
            #expect(lines.value == Self.text)
        }
    }

    @Test(arguments: [true, false])
    func `a line that is not UTF-8, or too long, fails after those before it`(isFile: Bool) async throws {
        let bytes = Array("one\ntwo\n\u{1}three\n".utf8).map { $0 == 1 ? 0xFF : $0 }
        let file = try TemporaryFile(bytes)
        let feed = try Feed()
        feed.put(bytes)
        feed.end()
        let input = isFile ? InputStream(path: file.path) : feed.makeStream()
        var lines: [String] = []
        let error = await thrownError {
            for try await line in input.lines(text: .report) { lines.append(line) }
        }
        #expect(error is InvalidText)
        #expect((error as? InvalidText)?.offset == 8)
        #expect(lines == ["one", "two"])
        // The line stays with the stream.
        let second = await thrownError { for try await line in input.lines(limit: 5) { lines.append(line) } }
        #expect(second is LineFramer.LineTooLong)
        for try await line in input.lines { lines.append(line) }
        #expect(lines == ["one", "two", "\u{FFFD}three"])
    }

    @Test func `options cut as a framer does`() async throws {
        let feed = try Feed("abcdef\0gh\0\0")
        feed.end()
        var lines: [String] = []
        let sequence = feed.makeStream().lines(terminator: .bytes([0]), limit: 4, overflow: .truncate)
        for try await line in sequence { lines.append(line) }
        #expect(lines == ["abcd", "gh", ""])
    }

    @Test func `lines that are split and left lose nothing`() async throws {
        let feed = try Feed("abcde")
        // The task ends before the stream is used here.
        nonisolated(unsafe) let input = feed.makeStream()
        let first = Task.detached {
            for try await line in input.lines(limit: 4, overflow: .split) { return line }
            return ""
        }
        // The second piece must come when the first is waiting to be one.
        await yieldUntil {
            var count: CInt = 0
            return ioctl(feed.readEnd.rawValue, UInt(FIONREAD), &count) == 0 && count == 0
        }
        feed.put("fghijklmnop\nqrs\n")
        feed.end()
        var rest = try await first.value
        for try await chunk in input.chunks { rest += String(decoding: chunk, as: UTF8.self) }
        #expect(rest == "abcdefghijklmnop\nqrs\n")
    }

    @Test(arguments: TaskPlace.allCases)
    func `a file's lines that are left release the file`(place: TaskPlace) async throws {
        let file = try TemporaryFile(Self.text.joined(separator: "\n"))
        try await place.run { _ in
            for try await _ in InputStream(path: file.path).lines { break }
            await yieldUntil { openDescriptors(of: file.path) == 0 }
        }
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

    @Test func `a file that cannot be read is an error`() async throws {
        let missing = await thrownError { for try await _ in InputStream(path: "/nonexistent").lines {} }
        #expect(missing?.errno == .noSuchFileOrDirectory)
        let file = await thrownError { for try await _ in InputStream(path: "/proc/self/mem").lines {} }
        #expect(file?.errno == .ioError)
    }

    @Test(arguments: [true, false])
    func `closing the stream ends its lines`(isFile: Bool) async throws {
        let file = try TemporaryFile(Self.text.joined(separator: "\n"))
        let feed = try Feed("one\n")
        let input = isFile ? InputStream(path: file.path) : feed.makeStream()
        let error = await thrownError { for try await _ in input.lines { input.close() } }
        #expect(error?.errno == .badFileDescriptor)
    }
}
