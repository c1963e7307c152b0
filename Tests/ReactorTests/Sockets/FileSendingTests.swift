import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Bytes of files that streams send.
@Suite(.runLoop) struct FileSendingTests {
    /// A file with the pattern's first bytes, open for reading.
    private final class Source: Sendable {
        let file: FileDescriptor
        private let temporary: TemporaryFile

        init(_ count: Int) throws {
            temporary = try TemporaryFile(pattern(count))
            file = try FileDescriptor.open(temporary.path, .readOnly)
        }

        deinit { try? file.close() }
    }

    @Test(
        arguments: [SocketOrigin.ipv4, .path, .descriptor],
        [(0..<1_000_000, 0), (1..<2, 0), (4095..<200_001, 300_000)])
    func `a delegate sends a range of a file after buffered bytes`(
        origin: SocketOrigin, parts: (range: Range<Int>, bufferedCount: Int)
    ) throws {
        let (range, bufferedCount) = parts
        let (source, fixture) = (try Source(1_000_000), try SocketFixture(origin, isNarrow: true))
        let recorder = Recorder()
        var rest = range
        recorder.onEvent = { stream, event in
            guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
            #expect(throws: Never.self) {
                rest = rest.dropFirst(try output.write(contentsOf: source.file, range: rest))
            }
            if rest.isEmpty { output.close() }
        }
        fixture.output.writeBufferSize = bufferedCount
        fixture.output.schedule(in: .current, forMode: .default)
        try fixture.openBoth()
        #expect(bufferedCount == 0 || fixture.output.write(pattern(bufferedCount)) == bufferedCount)
        fixture.output.delegate = recorder
        let peer = try fixture.peer
        fixture.input.close()
        let received = try Background { peer.receiveToEnd() }
        RunLoop.current.serve { rest.isEmpty }
        #expect(received.value == pattern(bufferedCount) + pattern(1_000_000)[range])
        // The file's own offset stays.
        #expect(try source.file.seek(offset: 0, from: .current) == 0)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task sends a file to a slow reader`(place: TaskPlace) async throws {
        let source = try Source(500_000)
        let received = try await place.run { _ in
            let server = try SocketServer(.ipv4, isNarrow: true)
            let connection = try await Connection.connect(to: server.address)
            let peer = try server.accept()
            let received = try Background { peer.receiveToEnd(by: 4096) }
            try await connection.write("head")
            try await connection.write(contentsOf: source.file, range: 10..<499_999)
            try await connection.write("tail")
            connection.close()
            return received
        }
        let expected = Array("head".utf8) + pattern(500_000)[10..<499_999] + Array("tail".utf8)
        #expect(received.value == expected)
    }

    @Test func `a stream that is not a plain socket copies the bytes`() throws {
        let source = try Source(100_000)
        let output = OutputStream.toMemory()
        output.open()
        #expect(try output.write(contentsOf: source.file, range: 7..<60_000) == 59_993)
        #expect(output.writtenBytes == Array(pattern(100_000)[7..<60_000]))

        final class Counting: OutputStream {
            var count = 0
            override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
                count += len
                return len
            }
        }
        let counting = Counting(descriptor: try SocketPeer.pair().other, closeWhenDone: true)
        #expect(try counting.write(contentsOf: source.file, range: 0..<10) == 10)
        #expect(counting.count == 10)

        let fixture = try SocketFixture.protected()
        #expect(try fixture.output.write(contentsOf: source.file, range: 0..<1000) == 1000)
        #expect(try fixture.peer.receiveRecord()?.bytes == pattern(1000))
    }

    // MARK: Failures

    @Test func `a file that cannot be read is an error, and the stream continues`() throws {
        let (source, fixture, pipe) = (try Source(10), try SocketFixture(), try TestPipe())
        try fixture.openBoth()
        let output = fixture.output!
        expectErrno(.noData) { try output.write(contentsOf: source.file, range: 10..<11) }
        expectErrno(.illegalSeek) { try output.write(contentsOf: pipe.readEnd, range: 0..<1) }
        expectErrno(.badFileDescriptor) {
            try output.write(contentsOf: FileDescriptor(rawValue: 1 << 20), range: 0..<1)
        }
        #expect(try output.write(contentsOf: source.file, range: 5..<5) == 0)
        #expect(try output.write(contentsOf: source.file, range: 5..<20) == 5)
        fixture.closeBoth()
        #expect(try fixture.peer.receiveToEnd() == Array(pattern(10)[5...]))
        #expect(try output.write(contentsOf: source.file, range: 0..<10) == -1)
    }

    @Test func `a task learns how much of a file was sent that ends too early`() async throws {
        let source = try Source(10)
        try await TaskPlace.pool.run { _ in
            let fixture = try SocketFixture(.descriptor)
            fixture.input.open()
            var accepted = 0
            let error = await thrownError {
                try await fixture.output.writeAll(
                    contentsOf: source.file, range: 4..<20, accepted: &accepted)
            }
            #expect(accepted == 6 && error?.errno == .noData)
            try await fixture.output.writeAll(contentsOf: source.file, range: 0..<2, accepted: &accepted)
            #expect(accepted == 2)
            #expect((error as? IOError)?.subject == "descriptor \(source.file.rawValue)")
            try await fixture.output.writeAll("more")
            fixture.closeBoth()
            let sent = pattern(10)[4...] + pattern(10)[..<2]
            #expect(try fixture.peer.receiveToEnd() == Array(sent) + Array("more".utf8))
        }
    }

    @Test func `a peer that has closed fails the stream without a signal`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGPIPE, SIG_DFL)
            let (source, fixture) = (try Source(10_000), try SocketFixture(.descriptor))
            fixture.output.open()
            try fixture.peer.close()
            let sent = try synchronously {
                try fixture.output.write(contentsOf: source.file, range: 0..<10_000)
            }
            try #require(sent == -1)
            try #require(fixture.output.streamErrno == .brokenPipe)
        }
    }

    @Test func `a range that begins below 0 traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = try synchronously {
                try OutputStream.toMemory().write(contentsOf: .standardInput, range: -1..<1)
            }
        }
        #expect(result.message.contains("negative"))
    }
}
