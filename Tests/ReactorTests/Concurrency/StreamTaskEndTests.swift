import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// How a stream call of a task ends that does not have what it waits for.
@Suite(.runLoop) struct StreamTaskEndTests {
    private let home = LoopThread()

    enum Ending: CaseIterable, Sendable {
        case cancellation, deadline, closing

        /// Whether `error` is what a stream call throws.
        func matches(_ error: (any Error)?) -> Bool {
            switch self {
            case .cancellation: error is CancellationError
            case .deadline: error?.errno == .timedOut
            case .closing: error?.errno == .badFileDescriptor
            }
        }

        /// Ends a task's call on `stream`, unless it ends by itself.
        func end(_ task: Task<some Any, any Error>, _ stream: Stream) {
            if self == .cancellation { task.cancel() }
            if self == .closing { stream.close() }
        }

        var timeout: Duration? { self == .deadline ? .milliseconds(5) : nil }
    }

    @Test(arguments: TaskPlace.allCases, Ending.allCases)
    func `a read that is ended keeps what it has`(place: TaskPlace, ending: Ending) async throws {
        let feed = try TestPipe("abc")
        let input = Carrier(feed.makeInput())
        let start = Deadline.now
        let task = place.start(on: home.loop) {
            await thrownError { _ = try await input.value.read(exactly: 4, timeout: ending.timeout) }
        }
        await yieldUntil { feed.isEmpty }
        ending.end(task, input.value)
        #expect(ending.matches(try await task.value))
        #expect(ending != .deadline || Deadline.now - start >= .milliseconds(5))
        if ending == .closing {
            await yieldUntil { isBroken(feed.writeEnd) }
            #expect(ending.matches(await thrownError { _ = try await input.value.readChunk() }))
        } else {
            feed.put("d")
            #expect(try await input.value.read(exactly: 4, timeout: .seconds(600)) == Array("abcd".utf8))
        }
    }

    @Test(arguments: TaskPlace.allCases, Ending.allCases)
    func `a write that is ended tells how many bytes were accepted`(place: TaskPlace, ending: Ending)
        async throws
    {
        let pipe = try TestPipe()
        let output = Carrier(pipe.makeOutput())
        let task = place.start(on: home.loop) {
            var accepted = 0
            let error = await thrownError {
                try await output.value.writeAll(
                    pattern(200_000), accepted: &accepted, timeout: ending.timeout)
            }
            return (ending.matches(error), accepted)
        }
        await yieldUntil { unreadCount(of: pipe.readEnd) == 65_536 }
        ending.end(task, output.value)
        #expect(try await task.value == (true, 65_536))
        pipe.close(pipe.readEnd)
        var accepted = 1
        let error = await thrownError { try await output.value.writeAll([0], accepted: &accepted) }
        #expect(error?.errno == (ending == .closing ? .badFileDescriptor : .brokenPipe))
        #expect(accepted == 0)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task that is cancelled before it reads reads nothing`(place: TaskPlace) async throws {
        let feed = try TestPipe("abc")
        let task = place.start(on: home.loop) {
            await yieldUntil { Task.isCancelled }
            let input = feed.makeInput()
            let errors = [
                await thrownError { _ = try await input.readChunk() },
                await thrownError { for try await _ in input.chunks {} },
                await thrownError { for try await _ in input.bytes {} },
                await thrownError { _ = try await input.read(until: [0]) },
            ]
            return (
                errors.allSatisfy { $0 is CancellationError },
                String(bytes: synchronously { input.read(upTo: 10) })
            )
        }
        task.cancel()
        #expect(try await task.value == (true, "abc"))
    }

    enum Iteration: CaseIterable, Sendable { case bytes, lines, linesOfFile }

    @Test(arguments: TaskPlace.allCases, Iteration.allCases)
    func `iterations that are cancelled at any moment lose nothing`(
        place: TaskPlace, iteration: Iteration
    ) async throws {
        let lines = StreamLinesTests.text.prefix(iteration == .bytes ? 500 : 5_000)
        let text = lines.joined(separator: "\n")
        let kind = iteration == .linesOfFile ? StreamKind.file : .pipe
        let fixture = Carrier(try Fixture(kind, Array(text.utf8)))
        let (received, isOver) = (Trace(), Shared(false))
        var round = 0
        while !isOver.value {
            let task = place.start(on: home.loop) {
                if iteration == .bytes {
                    for try await byte in fixture.value.input.bytes { received("\(byte)") }
                } else {
                    for try await line in fixture.value.input.lines { received(line) }
                }
                isOver.value = true
            }
            for _ in 0..<round % 40 { await Task.yield() }
            // A busy machine might end every round before its task has begun.
            if round % 40 == 39 {
                let before = received.all.count
                await yieldUntil { isOver.value || received.all.count > before }
            }
            round += 1
            task.cancel()
            do { try await task.value } catch { try #require(error is CancellationError) }
        }
        #expect(received.all == (iteration == .bytes ? text.utf8.map { "\($0)" } : Array(lines)))
    }

    @Test(arguments: TaskPlace.allCases)
    func `bytes come before the error of a connection`(place: TaskPlace) async throws {
        try await place.run { _ in
            let host = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
            let input = Connection(to: try host.localAddress).streams.input
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

    @Test func `a read of too few bytes before a reset keeps them, and the error`() async throws {
        let host = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let connection = Connection(to: try host.localAddress)
        connection.streams.input.open()
        let peer = try host.accept()
        peer.send(Array("abc".utf8))
        #expect(try await connection.waitForBytes())
        peer.reset()
        let error = await thrownError { _ = try await connection.read(exactly: 4) }
        #expect(error?.errno == .connectionReset)
        #expect(try await connection.read() == Array("abc".utf8))
        let late = await thrownError { _ = try await connection.read() }
        #expect(late?.errno == .connectionReset)
    }

    @Test(arguments: [true, false])
    func `bytes that an iteration puts back do not open a closed stream again`(isReset: Bool) async throws {
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other)
        let input = connection.streams.input
        peer.send("a\nb\n")
        for try await line in connection.lines() {
            #expect(line == "a")
            if isReset { connection.reset() } else { connection.close() }
            break
        }
        #expect(input.streamStatus == (isReset ? .error : .closed))
        #expect(input.streamError?.errno == (isReset ? .connectionAbort : nil))
        let late = await thrownError { _ = try await connection.read() }
        #expect(late?.errno == (isReset ? .connectionAbort : .badFileDescriptor))
    }

    @Test func `a stream that no task uses does not keep its loop busy`() async throws {
        let loop = home.loop
        let passes = Shared(0)
        loop.perform { loop.observe(.beforeTimers) { _ in passes.update { $0 += 1 } } }
        let feed = try TestPipe("abc")
        let input = Carrier(feed.makeInput())
        _ = try await Task(executorPreference: home.executor) {
            try await input.value.read(exactly: 1, timeout: .seconds(60))
        }.value
        feed.put("def")
        await yieldUntil { loop.isWaiting }
        let before = passes.value
        for _ in 0..<1_000 { await Task.yield() }
        #expect(passes.value < before + 20)
        #expect(try await input.value.read(exactly: 5) == Array("bcdef".utf8))
        feed.closeWriteEnd()
    }

    // MARK: Hand-offs

    private struct Counter: ChunkProcessor {
        var output = 0
        let started = Countdown(1)

        mutating func process(_ chunk: RawSpan) throws {
            output += chunk.byteCount
            started.count()
        }
    }

    @Test(arguments: [true, false], TaskPlace.allCases)
    func `a task waits for the result of a hand-off`(isFile: Bool, place: TaskPlace) async throws {
        let report = try await place.run { _ in
            let fixture = try Fixture(isFile ? .file : .pipe, pattern(1_000_000))
            let report = try await fixture.input.handOff(to: Counter(), on: DispatchQueue(label: "count"))
            #expect(fixture.input.streamStatus == .closed)
            return report
        }
        #expect(report.ending.name == "finished" && report.output == 1_000_000)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a hand-off throws what the processor or the stream has failed with`(place: TaskPlace) async throws {
        struct Refusal: Error {}
        struct Refusing: ChunkProcessor {
            let output = 0
            func process(_ chunk: RawSpan) throws { throw Refusal() }
        }
        try await place.run { _ in
            let fixture = try Fixture(.pipe, [1, 2, 3])
            let refusal = await thrownError {
                _ = try await fixture.input.handOff(to: Refusing(), on: DispatchQueue(label: "refuses"))
            }
            #expect(refusal is Refusal)
            let missing = InputStream(path: "/nowhere/at/all")
            let error = await thrownError {
                _ = try await missing.handOff(to: Counter(), on: DispatchQueue(label: "count"))
            }
            #expect(error?.errno == .noSuchFileOrDirectory)
        }
    }

    @Test(arguments: [true, false], TaskPlace.allCases)
    func `cancelling the task ends its hand-off`(isStarted: Bool, place: TaskPlace) async throws {
        let (feed, counter) = (try TestPipe("abc"), Counter())
        let task = place.start(on: home.loop) {
            if !isStarted { await yieldUntil { Task.isCancelled } }
            return try await feed.makeInput().handOff(to: counter, on: DispatchQueue(label: "count"))
        }
        if isStarted { counter.started.wait() }
        task.cancel()
        #expect(await thrownError { _ = try await task.value } is CancellationError)
        await yieldUntil { isBroken(feed.writeEnd) }
    }

    // MARK: Misuse

    enum Misuse: String, CaseIterable, Codable, Sendable {
        case twoReaders, noBytes, aDelegateFirst, aDelegateLater, aHandOff

        /// A part of the message.
        var word: String {
            switch self {
            case .twoReaders: "Two tasks"
            case .noBytes: "positive size"
            case .aDelegateFirst: "delegate to nil"
            case .aDelegateLater: "cannot get a delegate"
            case .aHandOff: "handed off"
            }
        }

        func commit() async throws {
            let (pipe, recorder) = (try TestPipe(), Recorder())
            let input = Carrier(pipe.makeInput())
            defer { withExtendedLifetime(pipe) {} }
            switch self {
            case .twoReaders:
                let iterator = input.value.chunks.makeAsyncIterator()
                _ = input.value.lines.makeAsyncIterator()
                withExtendedLifetime(iterator) {}
            case .noBytes: _ = try await input.value.readChunk(upTo: -1) { $0.byteCount }
            case .aDelegateFirst:
                input.value.delegate = recorder
                _ = try await input.value.readChunk()
            case .aDelegateLater:
                let iterator = input.value.chunks.makeAsyncIterator()
                input.value.delegate = nil
                input.value.delegate = recorder
                withExtendedLifetime(iterator) {}
            case .aHandOff:
                try onAThread {
                    ChunkHandoff(input.value, to: Counter(), on: .global()).start { _ in }
                    _ = input.value.chunks.makeAsyncIterator()
                }
            }
        }
    }

    @Test(arguments: Misuse.allCases)
    func `a stream that a task cannot use traps`(misuse: Misuse) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [misuse] in
            try await misuse.commit()
        }
        #expect(result.message.contains(misuse.word))
    }
}
