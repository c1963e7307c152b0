import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamTaskWritingTests {
    @Test(arguments: TaskPlace.allCases)
    func `all bytes are written, however slowly they are read`(place: TaskPlace) async throws {
        let expected = pattern(1_000_000)
        let (pipe, answer) = (try FileDescriptor.pipe(), Answer<[UInt8]>())
        try await place.run { _ in
            let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
            _ = try JoinableThread { answer.give(pipe.readEnd.readToEnd()) }
            try await output.writeAll(Array(expected.prefix(500_000)))
            try await output.writeAll(Array(expected.dropFirst(500_000)))
            try await output.flush()
            output.close()
        }
        #expect(answer.wait() == expected)
    }

    @Test func `a second task that writes gets an error, and the first one continues`() async throws {
        let pipe = try FileDescriptor.pipe()
        let output = Carrier(OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true))
        let expected = pattern(200_000)
        let first = Task { try await output.value.writeAll(expected) }
        await yieldUntil { unreadCount(of: pipe.readEnd) == 65_536 }
        let error = await thrownError { try await output.value.writeAll([1]) }
        #expect(error?.errno == .resourceBusy)
        let answer = Answer<[UInt8]>()
        _ = try JoinableThread { answer.give(pipe.readEnd.readToEnd()) }
        try await first.value
        try await output.value.writeAll([2])
        output.value.close()
        #expect(answer.wait() == expected + [2])
    }

    /// Where two threads meet.
    private final class Meeting: Sendable {
        private static let spinLimit = 10_000
        private let arrivals = Atomic(0)
        /// Whether the first was still spinning when the second came, so that both are running.
        let isTogether = Atomic(false)

        /// Returns at the same time on both. Spins for a while: a thread that yields comes too late.
        func arrive() {
            let isFirst = arrivals.add(1, ordering: .relaxed).oldValue == 0
            var spins = 0
            while arrivals.load(ordering: .relaxed) < 2 {
                spins += 1
                if spins.isMultiple(of: Self.spinLimit) { sched_yield() }
            }
            if isFirst, spins < Self.spinLimit { isTogether.store(true, ordering: .relaxed) }
        }
    }

    /// Writes as much as a pipe does not take in two tasks, which begin when they have met, and returns their errors.
    private func writeTwice(to output: Carrier<OutputStream>, on loops: [RunLoop], _ meeting: Meeting) async
        -> [(any Error)?]
    {
        let bytes = pattern(70_000)
        return await withTaskGroup(of: (any Error)?.self) { group in
            for loop in loops {
                group.addTask(executorPreference: loop.executor()) {
                    meeting.arrive()
                    return await thrownError { try await output.value.writeAll(bytes) }
                }
            }
            let first = await group.next() ?? nil
            group.cancelAll()
            return [first, await group.next() ?? nil]
        }
    }

    /// Neither has used the stream before. The tasks meet on two threads until they have begun at the same time often enough,
    /// which takes longer on a busy machine, and never happens on one processor.
    @Test func `of two tasks that begin to write at once, one gets an error`() async throws {
        let threads = try ["one", "other"].map { try RunLoopThread(name: $0) }
        var (rounds, together) = (0, 0)
        while together < 100, rounds < 2_000 {
            rounds += 1
            let pipe = try FileDescriptor.pipe()
            defer { try? pipe.readEnd.close() }
            let output = Carrier(OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true))
            let meeting = Meeting()
            let errors = await writeTwice(to: output, on: threads.map(\.runLoop), meeting)
            try #require(errors[0]?.errno == .resourceBusy && errors[1] is CancellationError)
            output.value.close()
            if meeting.isTogether.load(ordering: .relaxed) { together += 1 }
        }
        for thread in threads { await thread.shutDown() }
    }

    @Test(arguments: TaskPlace.allCases)
    func `what a file has accepted is on disk when it is sent`(place: TaskPlace) async throws {
        let folder = TemporaryFolder()
        try await place.run { loop in
            let path = folder.path.appending("file")
            let output = OutputStream(path: path)
            output.schedule(in: loop, forMode: .common)
            try await output.writeAll(pattern(1_000_000))
            try await output.flush()
            #expect(try content(of: path) == pattern(1_000_000))
        }
    }

    @Test(arguments: TaskPlace.allCases)
    func `a wait for the bytes in a write buffer ends with them, or at its deadline`(place: TaskPlace)
        async throws
    {
        let (peer, other) = try SocketPeer.pair()
        try await place.run { _ in
            let output = Connection(descriptor: other).streams.output
            output.writeBufferSize = 4_000_000
            try await output.writeAll(pattern(2_000_000))
            for _ in 0..<3 {
                let late = await thrownError { try await output.flush(timeout: .milliseconds(2)) }
                #expect(late?.errno == .timedOut)
            }
            #expect(waitingFlushCount(of: output) == 0)
            _ = try JoinableThread { _ = peer.receiveToEnd() }
            try await output.finish()
            #expect(output.streamStatus == .atEnd)
        }
    }

    @Test func `what an output cannot take is an error`() async throws {
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 4)
        defer { memory.deallocate() }
        let buffer = OutputStream(toBuffer: memory, capacity: 4)
        var accepted = 0
        let full = await thrownError { try await buffer.writeAll(Array("abcdef".utf8), accepted: &accepted) }
        #expect(full?.errno == .noSpace && accepted == 4)
        let pair = Stream.boundPair(bufferSize: 4)
        pair.output.open()
        pair.input.open()
        pair.input.close()
        #expect(await thrownError { try await pair.output.writeAll("a") }?.errno == .brokenPipe)
        let file = OutputStream(path: "/dev/null")
        try await file.finish()
        #expect(file.streamStatus == .closed)
    }

    // MARK: Connecting
}

extension FileDescriptor {
    /// Reads, blocking, until the end.
    fileprivate func readToEnd() -> [UInt8] {
        let input = InputStream(descriptor: self, closeWhenDone: true)
        return input.readAllBytes()
    }
}
