import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamReadingTests {
    // MARK: Everything arrives

    @Test(arguments: TaskPlace.allCases, StreamKind.finite.filter(\.isInput))
    func `chunks have all bytes in order, and then they end`(place: TaskPlace, kind: StreamKind) async throws
    {
        let bytes = try await place.run { _ in
            let fixture = try Fixture(kind)
            var bytes: [UInt8] = []
            for try await chunk in (fixture.stream as! InputStream).chunks(upTo: 4) {
                #expect((1...4).contains(chunk.count))
                bytes += chunk
            }
            return bytes
        }
        #expect(bytes == Fixture.content)
    }

    @Test(arguments: TaskPlace.allCases, [4096, 65_536])
    func `chunks keep up with a writer that fills the pipe`(place: TaskPlace, size: Int) async throws {
        let expected = pattern(1_000_000)
        let bytes = try await place.run { _ in
            let feed = try Feed()
            try feed.send(expected)
            var bytes: [UInt8] = []
            for try await chunk in feed.makeStream().chunks(upTo: size) { bytes += chunk }
            return bytes
        }
        #expect(bytes == expected)
    }

    @Test(arguments: TaskPlace.allCases)
    func `bytes come one by one`(place: TaskPlace) async throws {
        let expected = pattern(100_000)
        let bytes = try await place.run { _ in
            let feed = try Feed()
            try feed.send(expected)
            var bytes: [UInt8] = []
            for try await byte in feed.makeStream().bytes { bytes.append(byte) }
            return bytes
        }
        #expect(bytes == expected)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a file is read to its end`(place: TaskPlace) async throws {
        let expected = pattern(1_000_000)
        let file = try TemporaryFile(expected)
        let bytes = try await place.run { _ in
            var bytes: [UInt8] = []
            for try await chunk in InputStream(path: file.path).chunks { bytes += chunk }
            return bytes
        }
        #expect(bytes == expected)
    }

    @Test(arguments: TaskPlace.allCases)
    func `operations read what they name, and leave the rest`(place: TaskPlace) async throws {
        try await place.run { _ in
            let feed = try Feed("abcdef-\r\n-ghi\r\n")
            let input = feed.makeStream()
            #expect(String(bytes: try await input.read(exactly: 3)) == "abc")
            #expect(try await input.readChunk(upTo: 2).map { String(bytes: $0) } == "de")
            #expect(try await input.read(until: Array("\r\n".utf8)).map { String(bytes: $0) } == "f-")
            #expect(try await input.readChunk(upTo: 3) { $0.byteCount } == 3)
            #expect(try await input.read(until: Array("\r\n".utf8)).map { String(bytes: $0) } == "i")
            feed.end()
            #expect(try await input.readChunk() == nil)
            #expect(try await input.read(until: [10]) == nil)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a read appends to the caller's memory`(place: TaskPlace) async throws {
        try await place.run { _ in
            let feed = try Feed("abc")
            let input = feed.makeStream()
            var text = ""
            // The whole buffer is lent for as long as it is filled.
            let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 5, alignment: 1)
            defer { memory.deallocate() }
            var buffer = OutputRawSpan(buffer: memory, initializedCount: 0)
            #expect(try await input.read(into: &buffer) == 3)
            feed.put("defg")
            #expect(try await input.read(into: &buffer) == 2)
            let isFull = buffer.isFull
            #expect(isFull)
            text = String(bytes: memory[..<buffer.finalize(for: memory)])
            #expect(text == "abcde")
            #expect(input.read(upTo: 9) == Array("fg".utf8))
        }
    }

    @Test func `a chunk's closure may suspend, and throw`() async throws {
        let feed = try Feed("abc")
        let input = feed.makeStream()
        let count = try await input.readChunk { bytes in
            let before = bytes.byteCount
            await Task.yield()
            return before + bytes.byteCount
        }
        #expect(count == 6)
        feed.put("d")
        await #expect(throws: Errno.canceled) { try await input.readChunk { _ in throw Errno.canceled } }
        feed.end()
        #expect(try await input.readChunk { _ in true } == nil)
    }

    @Test(arguments: [1, 2, 3, 65_536])
    func `a delimiter is found however the bytes arrive`(size: Int) async throws {
        let (input, output) = Stream.boundPair(bufferSize: size)
        output.open()
        let isOver = Answer<Void>()
        let carrier = Carrier(output)
        _ = try JoinableThread {
            carrier.value.write("one\r\ntwo\r\r\n\r\nlast")
            carrier.value.close()
            isOver.give(())
        }
        var lines: [String] = []
        let error = await thrownError {
            while let line = try await input.read(until: Array("\r\n".utf8)) {
                lines.append(String(bytes: line))
            }
        }
        #expect(error?.errno == .noData && (error as? IOError)?.bytesReceived == 4)
        #expect(lines == ["one", "two\r", ""])
        #expect(try await input.readChunk().map { String(bytes: $0) } == "last")
        isOver.wait()
    }

    @Test func `a delimiter that does not come within the limit is an error, and the bytes stay`()
        async throws
    {
        let feed = try Feed("abcdef\n")
        let input = feed.makeStream()
        #expect(
            await thrownError { _ = try await input.read(until: [10], limit: 5) }?.errno == .messageTooLong)
        #expect(try await input.read(until: [10], limit: 6) == Array("abcdef".utf8))
    }

    // MARK: A peer that keeps up

    @Test(arguments: Message.allCases)
    func `a task that reads a long message lets its loop make passes`(message: Message) async throws {
        try await withRunLoopThread(name: "long") { thread in
            let loop = thread.runLoop
            let count = try await loop.onActor { _ in
                let input = InputStream(data: Message.content)
                let hasPassed = Shared(false)
                loop.perform { hasPassed.value = true }
                let count = try await message.read(from: input, timeout: nil)
                #expect(hasPassed.value)
                return count
            }
            #expect(count == Message.length)
        }
    }

    @Test(arguments: Message.allCases)
    func `a long message ends at its deadline, and its bytes stay`(message: Message) async throws {
        try await withRunLoopThread(name: "late") { thread in
            try await thread.runLoop.onActor { _ in
                let input = InputStream(data: Message.content)
                let error = await thrownError { _ = try await message.read(from: input, timeout: .zero) }
                #expect(error?.errno == .timedOut)
                let count = try await message.read(from: input, timeout: nil)
                #expect(count == Message.length)
            }
        }
    }

    @Test(arguments: Message.allCases)
    func `a task that reads a long message can be cancelled, and its bytes stay`(message: Message)
        async throws
    {
        try await withRunLoopThread(name: "cancelled") { thread in
            let loop = thread.runLoop
            try await loop.onActor { actor in
                let input = InputStream(data: Message.content)
                let running = Shared<Task<Bool, Never>?>(nil)
                let task = Task {
                    _ = actor
                    loop.perform { running.value?.cancel() }
                    let error = await thrownError { _ = try await message.read(from: input, timeout: nil) }
                    return error is CancellationError
                }
                running.value = task
                #expect(await task.value)
                let count = try await message.read(from: input, timeout: nil)
                #expect(count == Message.length)
            }
        }
    }

    // MARK: Nothing is lost

    @Test func `an iteration that is left leaves the rest to the next reader`() async throws {
        let feed = try Feed("abcdefgh")
        let input = feed.makeStream()
        var text = ""
        for try await byte in input.bytes {
            text += String(bytes: [byte])
            if text.count == 2 { break }
        }
        for try await chunk in input.chunks(upTo: 2) {
            text += String(bytes: chunk)
            break
        }
        for try await byte in input.bytes {
            text += String(bytes: [byte])
            break
        }
        text += "-" + String(bytes: try await input.read(exactly: 1))
        text += "-" + String(bytes: input.read(upTo: 100))
        #expect(text == "abcde-f-gh")
    }

    @Test func `an iterator that has ended or thrown leaves the stream to others, and stays at its end`()
        async throws
    {
        let feed = try Feed("abc")
        feed.end()
        let input = feed.makeStream()
        var chunks = input.chunks.makeAsyncIterator()
        #expect(try await chunks.next() == Array("abc".utf8))
        #expect(try await chunks.next() == nil)
        var bytes = input.bytes.makeAsyncIterator()
        #expect(try await bytes.next() == nil)
        var lines = input.lines.makeAsyncIterator()
        #expect(try await lines.next() == nil)
        #expect(try await input.readChunk() == nil)
        let failing = InputStream(path: "/nonexistent/file")
        var failed = failing.chunks.makeAsyncIterator()
        #expect(await thrownError { _ = try await failed.next() }?.errno == .noSuchFileOrDirectory)
        #expect(await thrownError { _ = try await failing.readChunk() }?.errno == .noSuchFileOrDirectory)
        #expect(try await failed.next() == nil)
        #expect(try await chunks.next() == nil)
    }

    @Test func `a delegate that is set after an iteration gets the rest`() async throws {
        try await TaskPlace.loopActor.run { loop in
            let feed = try Feed("abcdef")
            let input = feed.makeStream()
            for try await byte in input.bytes where byte == UInt8(ascii: "c") { break }
            #expect(input.delegate == nil)
            let recorder = Recorder()
            recorder.readsEverything(by: 2)
            feed.put("ghi")
            feed.end()
            loop.serveNow(input, recorder)
            #expect(String(bytes: recorder.bytes) == "defghi")
            #expect(recorder.events.last == .endEncountered)
        }
    }

    @Test(arguments: StreamKind.finite.filter(\.isInput), [false, true])
    func `a delegate that is set after an iteration gets the end that the iteration has reached`(
        kind: StreamKind, isScheduled: Bool
    ) async throws {
        try await TaskPlace.loopActor.run { loop in
            let fixture = try Fixture(kind)
            let input = fixture.stream as! InputStream
            if isScheduled { input.schedule(in: loop, forMode: .default) }
            // The line ends with the stream: only the end shows that it is whole.
            for try await _ in input.lines { break }
            for _ in 0..<3 { try await loop.waitForPass() }
            let recorder = Recorder()
            loop.serveNow(input, recorder)
            #expect(recorder.count(.endEncountered) == 1)
            #expect(recorder.count(.hasBytesAvailable) == 0)
        }
    }

    @Test func `a delegate that is set after an error gets the error`() async throws {
        try await TaskPlace.loopActor.run { loop in
            let input = InputStream(path: "/nonexistent/file")
            input.schedule(in: loop, forMode: .default)
            await #expect(throws: IOError.self) { for try await _ in input.lines {} }
            for _ in 0..<3 { try await loop.waitForPass() }
            let recorder = Recorder()
            input.start(recorder)
            loop.serveNow(recorder, until: .errorOccurred)
        }
    }

    @Test func `a delegate that is set after the output was shut down gets no end`() async throws {
        try await TaskPlace.loopActor.run { loop in
            let (peer, other) = try SocketPeer.pair()
            let output = Stream.connection(descriptor: other, closeWhenDone: true).output
            try await output.shutDown(timeout: nil)
            let recorder = Recorder()
            output.start(recorder)
            loop.pollNow()
            #expect(!recorder.events.contains(.endEncountered))
            withExtendedLifetime(peer) {}
        }
    }

    @Test(arguments: [StreamKind.bytes, .file, .boundInput])
    func `bytes that are put back precede the end`(kind: StreamKind) async throws {
        let fixture = try Fixture(kind)
        let input = fixture.stream as! InputStream
        for try await byte in input.bytes where byte == UInt8(ascii: "e") { break }
        #expect(input.streamStatus == .open)
        #expect(input.hasBytesAvailable)
        #expect(input.read(upTo: 10) == [UInt8(ascii: "f")])
        #expect(input.read(upTo: 10) == [])
        #expect(input.streamStatus == .atEnd)
    }

    @Test func `the offset of a file is before bytes that were put back`() async throws {
        let file = try TemporaryFile("abcdef")
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        defer { try? descriptor.close() }
        let input = InputStream(descriptor: descriptor)
        for try await byte in input.bytes where byte == UInt8(ascii: "b") { break }
        #expect(input.property(forKey: .fileCurrentOffsetKey) as? Int == 2)
        #expect(input.setProperty(1, forKey: .fileCurrentOffsetKey))
        #expect(input.read(upTo: 2) == Array("bc".utf8))
        for try await byte in input.bytes where byte == UInt8(ascii: "d") { break }
        input.close()
        #expect(try descriptor.seek(offset: 0, from: .current) == 4)
    }

    @Test func `bytes that are put back twice come before the rest`() async throws {
        let feed = try Feed()
        let expected = pattern(20_000)
        try feed.send(expected)
        let input = feed.makeStream()
        var bytes: [UInt8] = []
        while bytes.count < 600 {
            for try await byte in input.bytes {
                bytes.append(byte)
                break
            }
            let delimiter = expected[bytes.count + 1]
            bytes += try await input.read(until: [delimiter]) ?? []
            bytes.append(delimiter)
        }
        bytes += try await input.read(exactly: expected.count - bytes.count)
        #expect(bytes == expected)
        #expect(try await input.readChunk() == nil)
    }

    @Test func `the offset of a file is before bytes that were put back twice`() async throws {
        let file = try TemporaryFile(String(repeating: "012345678\n", count: 1_000))
        let descriptor = try FileDescriptor.open(file.path, .readOnly)
        defer { try? descriptor.close() }
        let input = InputStream(descriptor: descriptor)
        for try await byte in input.bytes where byte == 10 { break }
        #expect(try await input.read(until: [10])?.count == 9)
        #expect(input.property(forKey: .fileCurrentOffsetKey) as? Int == 20)
        #expect(input.setProperty(35, forKey: .fileCurrentOffsetKey))
        #expect(input.read(upTo: 3) == Array("567".utf8))
        for try await _ in input.bytes { break }
        #expect(try await input.read(until: [10]) == [])
        input.close()
        #expect(try descriptor.seek(offset: 0, from: .current) == 40)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a read of too few bytes keeps them`(place: TaskPlace) async throws {
        try await place.run { _ in
            let feed = try Feed("abc")
            feed.end()
            let input = feed.makeStream()
            let half = await thrownError { _ = try await input.read(exactly: 4) } as? IOError
            #expect(half?.errno == .noData && half?.bytesReceived == 3 && half?.bytesRequested == 4)
            #expect(half?.description.hasSuffix(": ended after 3 of 4 bytes") == true)
            #expect(input.streamStatus == .open)
            #expect(try await input.read(exactly: 3) == Array("abc".utf8))
            let clean = await thrownError { _ = try await input.read(exactly: 4) } as? IOError
            #expect(clean?.errno == .noData && clean?.bytesReceived == 0 && clean?.bytesRequested == 4)
        }
    }

    @Test func `what is not awaited is not read`() async throws {
        try await TaskPlace.loopActor.run { loop in
            let (peer, other) = try SocketPeer.pair()
            let input = Stream.connection(descriptor: other, closeWhenDone: true).input
            peer.send([1, 2, 3, 4])
            for try await _ in input.chunks(upTo: 1) { break }
            var unread: CInt = 0
            try await loop.clock().sleep(for: .milliseconds(1))
            #expect(ioctl(other.rawValue, UInt(FIONREAD), &unread) == 0)
            #expect(unread == 3)
        }
    }

    // MARK: Cancellation, deadlines, closing

    @Test(arguments: TaskPlace.allCases)
    func `a cancelled read ends at once, and keeps what it has`(place: TaskPlace) async throws {
        let feed = try Feed("abc")
        try await withRunLoopThread(name: "cancelled") { thread in
            let isReading = Shared(false)
            let task = place.start(on: thread) {
                let input = feed.makeStream()
                isReading.value = true
                let error = await thrownError { _ = try await input.read(exactly: 4) }
                return (error, String(bytes: input.read(upTo: 10)))
            }
            await yieldUntil { isReading.value && feed.isEmpty }
            task.cancel()
            let (error, left) = try await task.value
            #expect(error is CancellationError)
            #expect(left == "abc")
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task that is cancelled before it reads reads nothing`(place: TaskPlace) async throws {
        let feed = try Feed("abc")
        try await withRunLoopThread(name: "cancelled") { thread in
            let task = place.start(on: thread) {
                await yieldUntil { Task.isCancelled }
                let input = feed.makeStream()
                var errors: [(any Error)?] = []
                errors.append(await thrownError { _ = try await input.readChunk() })
                errors.append(await thrownError { for try await _ in input.chunks {} })
                errors.append(await thrownError { for try await _ in input.bytes {} })
                errors.append(await thrownError { _ = try await input.read(until: [0]) })
                return (errors, String(bytes: input.read(upTo: 10)))
            }
            task.cancel()
            let (errors, left) = try await task.value
            #expect(errors.allSatisfy { $0 is CancellationError })
            #expect(left == "abc")
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `iterations that are cancelled at any moment lose no byte`(place: TaskPlace) async throws {
        let expected = pattern(20_000)
        let feed = try Feed()
        try feed.send(expected)
        try await withRunLoopThread(name: "races") { thread in
            let input = Carrier(feed.makeStream())
            let bytes = Shared<[UInt8]>([])
            let isOver = Shared(false)
            var round = 0
            while !isOver.value {
                let task = place.start(on: thread) {
                    let error = await thrownError {
                        for try await byte in input.value.bytes { bytes.update { $0.append(byte) } }
                        isOver.value = true
                    }
                    #expect(error == nil || error is CancellationError, "\(String(describing: error))")
                    if error != nil, !(error is CancellationError) { isOver.value = true }
                }
                for _ in 0..<round % 7 { await Task.yield() }
                round += 1
                task.cancel()
                try await task.value
            }
            #expect(bytes.value == expected)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a deadline ends a read, which keeps what it has`(place: TaskPlace) async throws {
        try await place.run { _ in
            let feed = try Feed("abc")
            let input = feed.makeStream()
            let start = Deadline.now
            #expect(
                await thrownError { _ = try await input.read(exactly: 4, timeout: .milliseconds(5)) }?.errno
                    == .timedOut)
            #expect(Deadline.now - start >= .milliseconds(5))
            #expect(
                await thrownError { _ = try await input.read(exactly: 4, timeout: .zero) }?.errno == .timedOut
            )
            feed.put("d")
            #expect(try await input.read(exactly: 4, timeout: .zero) == Array("abcd".utf8))
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `closing the stream ends a read`(place: TaskPlace) async throws {
        let feed = try Feed()
        try await withRunLoopThread(name: "closing") { thread in
            let input = Carrier(feed.makeStream())
            let isReading = Shared(false)
            let task = place.start(on: thread) {
                isReading.value = true
                return await thrownError { _ = try await input.value.readChunk() }
            }
            await yieldUntil { isReading.value && input.value.streamStatus == .open }
            input.value.close()
            let error = try await task.value
            #expect(error?.errno == .badFileDescriptor)
            await yieldUntil { isBroken(feed.writeEnd) }
            #expect(await thrownError { _ = try await input.value.readChunk() }?.errno == .badFileDescriptor)
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `bytes come before the error of a connection`(place: TaskPlace) async throws {
        try await place.run { _ in
            let host = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
            let input = Stream.connection(to: try host.localAddress).input
            input.open()
            let peer = try host.accept()
            peer.send(Array("abc".utf8))
            var text = ""
            let error = await thrownError {
                for try await chunk in input.chunks {
                    text += String(bytes: chunk)
                    peer.reset()
                }
            }
            #expect(text == "abc")
            #expect(error?.errno == .connectionReset)
        }
    }

    @Test func `a file that is missing is an error of the sequence`() async throws {
        let error = await thrownError { for try await _ in InputStream(path: "/nonexistent/file").chunks {} }
        #expect(error?.errno == .noSuchFileOrDirectory)
        #expect(error.map { "\($0)" } == "open /nonexistent/file: No such file or directory")
    }

    // MARK: Lifetime

    @Test(arguments: TaskPlace.allCases)
    func `a sequence that is left releases its stream and the descriptor`(place: TaskPlace) async throws {
        let feed = try Feed("abcdef")
        try await place.run { _ in
            for try await _ in feed.makeStream().bytes { break }
            // A loop on another thread unregisters the descriptor first.
            await yieldUntil { isBroken(feed.writeEnd) }
            let fate = try await fateOfReader()
            await yieldUntil { fate.object == nil }
        }
    }

    // MARK: Refusals

    @Test func `two tasks cannot read one stream`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let input = Carrier(try Feed().makeStream())
            await withTaskGroup { group in
                for _ in 0..<2 { group.addTask { _ = try? await input.value.readChunk() } }
            }
        }
        #expect(result.message.contains("Two tasks read the same stream"))
    }

    @Test func `a chunk of no bytes traps`() async {
        let results = [
            await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
                _ = try await InputStream(data: [1]).readChunk(upTo: 0)
            },
            await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
                _ = try await InputStream(data: [1]).readChunk(upTo: -1) { $0.byteCount }
            },
        ]
        for result in results { #expect(result.message.contains("needs a positive size")) }
    }

    @Test func `a stream with a delegate refuses tasks`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let input = try Feed().makeStream()
            let recorder = Recorder()
            input.delegate = recorder
            _ = try await input.readChunk()
        }
        #expect(result.message.contains("set the delegate to nil first"))
    }

    @Test func `a stream that a task reads refuses a delegate`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let input = try Feed().makeStream()
            input.delegate = nil
            let iterator = input.chunks.makeAsyncIterator()
            input.delegate = nil
            let recorder = Recorder()
            input.delegate = recorder
            withExtendedLifetime(iterator) {}
        }
        #expect(result.message.contains("cannot get a delegate while a task uses it"))
    }

    @Test func `a stream that is handed off refuses tasks`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let input = try! Feed().makeStream()
                let reader = LineReader(input, into: (), on: .global()) { _, _, _ in }
                reader.start { _ in }
                _ = input.chunks.makeAsyncIterator()
            }
        }
        #expect(result.message.contains("is handed off"))
    }
}

extension Feed {
    /// Whether the reader has taken everything.
    var isEmpty: Bool {
        var unread: CInt = 0
        return ioctl(writeEnd.rawValue, UInt(FIONREAD), &unread) == 0 && unread == 0
    }
}

/// What a stream stands on, after a task has read from it and released it.
nonisolated(nonsending) private func fateOfReader() async throws -> Weak {
    let input = try Feed("abc").makeStream()
    _ = try await input.read(exactly: 2)
    return Weak(input.internals)
}

struct Weak {
    weak var object: AnyObject?

    init(_ object: AnyObject) { self.object = object }
}

extension RunLoop {
    /// Runs the calling thread's loop until `recorder` has received the end of `input`.
    fileprivate func serveNow(_ input: InputStream, _ recorder: Recorder) {
        input.start(recorder)
        serveNow(recorder, until: .endEncountered)
    }

    /// Runs the calling thread's loop until `recorder` has received `event`.
    fileprivate func serveNow(_ recorder: Recorder, until event: Stream.Event) {
        serve { recorder.events.contains(event) }
    }

    fileprivate func pollNow() { poll(passes: 5) }
}

/// A message that takes many reads.
enum Message: CaseIterable, Sendable {
    case ofKnownLength, upToDelimiter

    static let length = 4_000_000
    static let content = [UInt8](repeating: 1, count: length) + [10]

    /// Returns the number of bytes.
    nonisolated(nonsending) func read(from input: InputStream, timeout: Duration?) async throws -> Int {
        switch self {
        case .ofKnownLength: try await input.read(exactly: Self.length, timeout: timeout).count
        case .upToDelimiter:
            try await input.read(until: [10], limit: Self.length, timeout: timeout)?.count ?? 0
        }
    }
}
