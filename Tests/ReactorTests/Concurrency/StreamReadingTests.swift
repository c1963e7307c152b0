import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamReadingTests {
    private let home = LoopThread()

    // MARK: Other work

    @Test(arguments: [true, false])
    func `operations that never have to wait leave the loop to its other work`(isReading: Bool) async throws {
        let (loop, hasRun) = (home.loop, Shared(false))
        try await Task(executorPreference: home.executor) {
            let input = InputStream(data: [UInt8](repeating: 0, count: 100_000))
            let output = OutputStream.toMemory()
            // Opening them lets the loop pass.
            _ = try await input.read(exactly: 10)
            try await output.writeAll([0])
            loop.perform { hasRun.value = true }
            // A pass runs up to 256 jobs of a task that continues by itself.
            for _ in 0..<100 where !hasRun.value {
                if isReading {
                    _ = try await input.read(exactly: 10)
                } else {
                    try await output.writeAll([0])
                }
            }
            #expect(hasRun.value)
        }.value
    }

    // MARK: Everything arrives

    @Test(arguments: TaskPlace.allCases, StreamKind.finite.filter(\.isInput))
    func `all bytes of an input come in order, however they are read, and then it ends`(
        place: TaskPlace, kind: StreamKind
    ) async throws {
        for reading in Reading.allCases {
            let expected = pattern(reading == .bytes ? 20_000 : 200_000)
            let bytes = try await place.run { _ in
                try await reading.allBytes(of: try Fixture(kind, expected))
            }
            #expect(bytes == expected)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a chunk of any size may be asked for`(place: TaskPlace) async throws {
        try await place.run { _ in
            let pipe = try TestPipe("abc")
            let input = pipe.makeInput()
            #expect(try await input.readChunk(upTo: .max) == Array("abc".utf8))
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a read appends to the caller's memory`(place: TaskPlace) async throws {
        try await place.run { _ in
            let feed = try TestPipe("abc")
            let input = feed.makeInput()
            let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 5, alignment: 1)
            defer { memory.deallocate() }
            var buffer = OutputRawSpan(buffer: memory, initializedCount: 0)
            #expect(try await input.read(into: &buffer) == 3)
            feed.put("defg")
            #expect(try await input.read(into: &buffer) == 2)
            let isFull = buffer.isFull
            #expect(isFull)
            #expect(String(bytes: memory[..<buffer.finalize(for: memory)]) == "abcde")
            #expect(synchronously { input.read(upTo: 9) } == Array("fg".utf8))
        }
    }

    @Test func `a chunk's closure may suspend, and throw`() async throws {
        let feed = try TestPipe("abc")
        let input = feed.makeInput()
        let count = try await input.readChunk { bytes in
            let before = bytes.byteCount
            await Task.yield()
            return before + bytes.byteCount
        }
        #expect(count == 6)
        feed.put("d")
        await #expect(throws: Errno.canceled) { try await input.readChunk { _ in throw Errno.canceled } }
        feed.closeWriteEnd()
        #expect(try await input.readChunk { _ in true } == nil)
    }

    @Test(arguments: [1, 2, 3, 65_536])
    func `a delimiter is found however the bytes arrive`(size: Int) async throws {
        let (input, output) = Stream.boundPair(bufferSize: size)
        output.open()
        let carrier = Carrier(output)
        let writer = try JoinableThread {
            _ = carrier.value.write("one\r\ntwo\r\r\n\r\nthe last")
            carrier.value.close()
        }
        var lines: [String] = []
        let error = await thrownError {
            while let line = try await input.read(until: Array("\r\n".utf8)) {
                lines.append(String(bytes: line))
            }
        }
        #expect((error as? IOError)?.reason == .ended(bytesReceived: 8, bytesRequested: nil))
        #expect(lines == ["one", "two\r", ""])
        // The bytes stay also when the delimiter does not come within the limit.
        let long = await thrownError { _ = try await input.read(until: Array("st".utf8), limit: 5) }
        #expect(long?.errno == .messageTooLong)
        #expect(try await input.read(until: Array("st".utf8), limit: 6) == Array("the la".utf8))
        #expect(try await input.read(until: [10]) == nil)
        writer.join()
    }

    @Test(arguments: ["|", "<>"])
    func `a message may have as many bytes as the limit, though its delimiter comes later`(delimiter: String)
        async throws
    {
        let feed = try TestPipe("four")
        let input = Carrier(feed.makeInput())
        let task = TaskPlace.pool.start(on: home.loop) {
            try await input.value.read(until: Array(delimiter.utf8), limit: 4)
        }
        for byte in delimiter {
            await yieldUntil { feed.isEmpty }
            feed.put(String(byte))
        }
        #expect(try await task.value == Array("four".utf8))
        feed.put("fives\(delimiter)")
        let error = await thrownError {
            _ = try await input.value.read(until: Array(delimiter.utf8), limit: 4)
        }
        #expect(error?.errno == .messageTooLong)
    }

    /// A task of the loop reads from memory, which never makes it wait.
    @Test(arguments: Message.allCases)
    func `a task that reads a long message lets its loop make passes, and can be ended meanwhile`(
        message: Message
    ) async throws {
        let loop = home.loop
        try await loop.onActor {
            let carrier = Carrier(InputStream(data: Message.content))
            let late = await thrownError { _ = try await message.read(from: carrier.value, timeout: .zero) }
            #expect(late?.errno == .timedOut)
            let running = Shared<Task<Void, any Error>?>(nil)
            let resident = Resident(loop.executor())
            running.value = Task {
                try await resident.perform {
                    loop.perform { running.value?.cancel() }
                    _ = try await message.read(from: carrier.value, timeout: nil)
                }
            }
            await #expect(throws: CancellationError.self) { try await running.value?.value }
            let hasPassed = Shared(false)
            loop.perform { hasPassed.value = true }
            let count = try await message.read(from: carrier.value, timeout: nil)
            #expect(count == Message.length)
            #expect(hasPassed.value)
        }
    }

    // MARK: What one reader leaves to the next

    /// A random choice of the ways to read, compared with the bytes and the offset that are expected. There are more bytes than
    /// one search for a delimiter reads.
    @Test(arguments: [StreamKind.file, .bytes, .pipe, .boundInput], 0..<8 as Range<UInt64>)
    func `each reader gets what the one before has left`(kind: StreamKind, seed: UInt64) async throws {
        var generator = SeededGenerator(seed: seed)
        let expected = (0..<12_000).map { _ in UInt8.random(in: 0..<40, using: &generator) }
        let fixture = try Fixture(kind, expected)
        let input = fixture.input
        input.open()
        var (offset, rest) = (0, expected[...])
        while !rest.isEmpty {
            let count = min(Int.random(in: 1...80, using: &generator), rest.count)
            var bytes: [UInt8]
            switch Int.random(in: 0..<6, using: &generator) {
            case 0: bytes = try await input.read(exactly: count) ?? []
            case 1: bytes = try await input.readChunk(upTo: count) ?? []
            case 2: bytes = synchronously { input.read(upTo: count) }
            case 3:
                bytes = []
                for try await byte in input.bytes {
                    bytes.append(byte)
                    if bytes.count == count { break }
                }
            case 4:
                let delimiter = rest[offset + count - 1]
                bytes = (try await input.read(until: [delimiter]) ?? []) + [delimiter]
            default:
                guard kind == .file else { continue }
                offset = Int.random(
                    in: max(0, offset - 30)...min(offset + 20, expected.count - 1), using: &generator)
                #expect(input.setProperty(offset, forKey: .fileCurrentOffsetKey))
                rest = expected[offset...]
                continue
            }
            try #require(!bytes.isEmpty && bytes == Array(rest.prefix(bytes.count)))
            (offset, rest) = (offset + bytes.count, rest.dropFirst(bytes.count))
            if kind == .file { #expect(input.property(forKey: .fileCurrentOffsetKey) as? Int == offset) }
        }
        #expect(try await fixture.input.readChunk() == nil)
    }

    @Test func `closing a stream leaves the offset of its file before bytes that were put back`() async throws
    {
        let file = try TemporaryFile("abcdef")
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        defer { try? descriptor.close() }
        let input = InputStream(descriptor: descriptor)
        for try await byte in input.bytes where byte == UInt8(ascii: "b") { break }
        input.close()
        #expect(try descriptor.seek(offset: 0, from: .current) == 2)
    }

    @Test(arguments: [StreamKind.bytes, .file, .boundInput])
    func `bytes that are put back precede the end`(kind: StreamKind) async throws {
        let fixture = try Fixture(kind)
        let input = fixture.input
        for try await byte in input.bytes where byte == UInt8(ascii: "e") { break }
        #expect(input.streamStatus == .open && input.hasBytesAvailable)
        #expect(synchronously { input.read(upTo: 10) } == [UInt8(ascii: "f")])
        #expect(synchronously { input.read(upTo: 10) } == [])
        #expect(input.streamStatus == .atEnd)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a read of too few bytes keeps them`(place: TaskPlace) async throws {
        try await place.run { _ in
            let feed = try TestPipe("abc")
            feed.closeWriteEnd()
            let input = feed.makeInput()
            let half = await thrownError { _ = try await input.read(exactly: 4) } as? IOError
            #expect(half?.reason == .ended(bytesReceived: 3, bytesRequested: 4))
            #expect(input.streamStatus == .open)
            #expect(try await input.read(exactly: 3) == Array("abc".utf8))
            #expect(try await input.read(exactly: 4) == nil, "the end between two messages")
            #expect(try await input.read(exactly: 0) == [])
        }
    }

    @Test func `an iterator that has ended or thrown leaves the stream to others, and stays at its end`()
        async throws
    {
        let feed = try TestPipe("abc")
        feed.closeWriteEnd()
        let input = feed.makeInput()
        var chunks = input.chunks.makeAsyncIterator()
        #expect(try await chunks.next() == Array("abc".utf8))
        #expect(try await chunks.next() == nil)
        var bytes = input.bytes.makeAsyncIterator()
        #expect(try await bytes.next() == nil)
        var lines = input.lines.makeAsyncIterator()
        #expect(try await lines.next() == nil)
        let failing = InputStream(path: "/nonexistent/file")
        var failed = failing.chunks.makeAsyncIterator()
        #expect(await thrownError { _ = try await failed.next() }?.errno == .noSuchFileOrDirectory)
        #expect(await thrownError { _ = try await failing.readChunk() }?.errno == .noSuchFileOrDirectory)
        #expect(try await failed.next() == nil)
        #expect(try await chunks.next() == nil)
    }

    // MARK: What a task leaves to a delegate

    @Test(arguments: StreamKind.finite.filter(\.isInput), [false, true])
    func `a delegate that is set after an iteration gets the rest and the end`(
        kind: StreamKind, isScheduled: Bool
    ) async throws {
        let loop = home.loop
        try await loop.onActor {
            for leavesRest in [false, true] {
                let (fixture, recorder) = (try Fixture(kind), Recorder())
                let input = fixture.input
                if isScheduled { input.schedule(in: loop, forMode: .default) }
                if leavesRest {
                    for try await byte in input.bytes where byte == UInt8(ascii: "c") { break }
                } else {
                    // The line ends with the stream: only the end shows that it is whole.
                    for try await _ in input.lines { break }
                }
                for _ in 0..<3 { await Task.yield() }
                recorder.readsEverything(by: 2)
                serve(input, recorder, until: .endEncountered)
                #expect(String(bytes: recorder.bytes) == (leavesRest ? "def" : ""))
                #expect(recorder.count(.endEncountered) == 1)
            }
            let (failing, recorder) = (InputStream(path: "/nonexistent/file"), Recorder())
            if isScheduled { failing.schedule(in: loop, forMode: .default) }
            await #expect(throws: IOError.self) { for try await _ in failing.lines {} }
            serve(failing, recorder, until: .errorOccurred)
        }
    }

    @Test func `a delegate that is set after a wait for bytes gets all of them`() async throws {
        try await home.loop.onActor {
            let (pipe, recorder) = (try TestPipe("abc"), Recorder())
            let input = pipe.makeInput()
            #expect(try await input.waitForBytes())
            recorder.readsEverything(by: 1)
            serve(input, recorder, until: .hasBytesAvailable)
            serve { recorder.bytes.count == 3 }
            #expect(String(bytes: recorder.bytes) == "abc")
            input.close()
        }
    }

    @Test func `a delegate that is set after the output was shut down gets no end`() async throws {
        try await home.loop.onActor {
            let (peer, other) = try SocketPeer.pair()
            let output = Connection(descriptor: other).streams.output
            try await output.finish(timeout: nil)
            let recorder = Recorder()
            serve(output, recorder, until: nil)
            #expect(!recorder.events.contains(.endEncountered))
            withExtendedLifetime(peer) {}
        }
    }

    @Test func `what is not awaited is not read`() async throws {
        let loop = home.loop
        try await loop.onActor {
            let (peer, other) = try SocketPeer.pair()
            let input = Connection(descriptor: other).streams.input
            peer.send([1, 2, 3, 4])
            for try await _ in input.chunks(upTo: 1) { break }
            for _ in 0..<5 { await Task.yield() }
            #expect(unreadCount(of: other) == 3)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a sequence that is left releases its stream and the descriptor`(place: TaskPlace) async throws {
        let (feed, file) = (try TestPipe("abcdef"), try TemporaryFile(pattern(1_000_000)))
        try await place.run { _ in
            for try await _ in feed.makeInput().bytes { break }
            for try await _ in InputStream(path: file.path).lines(limit: 2_000_000) { break }
            await yieldUntil { isBroken(feed.writeEnd) && openDescriptors(of: file.path) == 0 }
            let fate = try await fateOfReader()
            await yieldUntil { fate() }
        }
    }
}

/// A way to read a long input.
enum Reading: CaseIterable, Sendable {
    case smallChunks, chunks, bytes

    nonisolated(nonsending) func allBytes(of fixture: Fixture) async throws -> [UInt8] {
        let input = fixture.input
        var bytes: [UInt8] = []
        switch self {
        case .smallChunks:
            for try await chunk in input.chunks(upTo: 400) {
                #expect((1...400).contains(chunk.count))
                bytes += chunk
            }
        case .chunks: for try await chunk in input.chunks { bytes += chunk }
        case .bytes: for try await byte in input.bytes { bytes.append(byte) }
        }
        return bytes
    }
}

/// A message that takes many reads.
enum Message: CaseIterable, Sendable {
    case ofKnownLength, upToDelimiter

    static let length = 4_000_000
    static let content = [UInt8](repeating: 1, count: length) + [10]

    /// Returns the number of bytes.
    nonisolated(nonsending) func read(from input: InputStream, timeout: Duration?) async throws -> Int {
        switch self {
        case .ofKnownLength: try await input.read(exactly: Self.length, timeout: timeout)?.count ?? 0
        case .upToDelimiter:
            try await input.read(until: [10], limit: Self.length, timeout: timeout)?.count ?? 0
        }
    }
}

private func serve(until condition: () -> Bool) { RunLoop.current.serve(until: condition) }

/// Runs the calling thread's loop until `recorder`, as the delegate of `stream`, has received `event`; else some passes.
private func serve(_ stream: Stream, _ recorder: Recorder, until event: Stream.Event?) {
    stream.start(recorder)
    guard let event else { return RunLoop.current.poll(passes: 5) }
    RunLoop.current.serve { recorder.events.contains(event) }
}

/// Whether what a stream stands on is gone, after a task has read from it and released it.
nonisolated(nonsending) private func fateOfReader() async throws -> () -> Bool {
    let pipe = try TestPipe("abc")
    let input = pipe.makeInput()
    _ = try await input.read(exactly: 2)
    weak let object = input.internals
    return { object == nil }
}
