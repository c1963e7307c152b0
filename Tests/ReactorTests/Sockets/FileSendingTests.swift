import Glibc
import Reactor
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

    /// What a peer reads until the end while a delegate sends `range` of `source`.
    private func sent(
        _ range: Range<Int>, of source: Source, by fixture: SocketFixture
    ) throws -> [UInt8]? {
        let (loop, recorder, answer) = (RunLoop.current, Recorder(), Answer<[UInt8]?>())
        var rest = range
        recorder.onEvent = { stream, event in
            guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
            #expect(throws: Never.self) {
                rest = rest.dropFirst(try output.write(contentsOf: source.file, range: rest))
            }
            if rest.isEmpty { output.close() }
        }
        fixture.output.delegate = recorder
        fixture.output.schedule(in: loop, forMode: .default)
        try fixture.openBoth()
        let peer = try fixture.peer
        fixture.input.close()
        _ = try JoinableThread { answer.give(peer.receiveToEnd()) }
        loop.serve { rest.isEmpty }
        return answer.wait()
    }

    @Test(arguments: [SocketOrigin.ipv4, .path, .descriptor], [0..<3_000_000, 1..<2, 4095..<200_001])
    func `a delegate sends a range of a file`(origin: SocketOrigin, range: Range<Int>) throws {
        let source = try Source(3_000_000)
        let received = try sent(range, of: source, by: SocketFixture(origin, isNarrow: true))
        #expect(received == Array(pattern(3_000_000)[range]))
        // The file's own offset stays.
        #expect(try source.file.seek(offset: 0, from: .current) == 0)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task sends a file to a slow reader`(place: TaskPlace) async throws {
        let source = try Source(2_000_000)
        let received = try await place.run { _ in
            let server = try SocketServer(.ipv4, isNarrow: true)
            let (input, output) = try await Stream.connect(to: server.address)
            let peer = try server.accept()
            let answer = Answer<[UInt8]?>()
            _ = try JoinableThread { answer.give(peer.receiveToEnd(by: 4096)) }
            var accepted = 0
            try await output.writeAll("head")
            try await output.writeAll(
                contentsOf: source.file, range: 10..<1_999_999, accepted: &accepted)
            #expect(accepted == 1_999_989)
            try await output.writeAll("tail")
            input.close()
            output.close()
            return try await onItsOwnThread { answer.wait() }
        }
        let expected = Array("head".utf8) + pattern(2_000_000)[10..<1_999_999] + Array("tail".utf8)
        #expect(received == expected)
    }

    @Test func `a file follows the bytes of a write buffer`() throws {
        let (source, fixture) = (try Source(100_000), try SocketFixture(isNarrow: true))
        fixture.output.writeBufferSize = 1 << 20
        fixture.output.schedule(in: .current, forMode: .default)
        try fixture.openBoth()
        #expect(fixture.output.write(pattern(500_000)) == 500_000)
        var rest = 0..<100_000
        while !rest.isEmpty {
            rest = rest.dropFirst(try fixture.output.write(contentsOf: source.file, range: rest))
        }
        fixture.closeBoth()
        #expect(try fixture.peer.receiveToEnd() == pattern(500_000) + pattern(100_000))
    }

    @Test func `a stream that is not a plain socket copies the bytes`() async throws {
        try await onItsOwnThread {
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
            let (peer, other) = try SocketPeer.pair()
            let counting = Counting(descriptor: other, closeWhenDone: true)
            #expect(try counting.write(contentsOf: source.file, range: 0..<10) == 10)
            #expect(counting.count == 10)
            peer.close()
        }
    }

    @Test func `a protected stream sends a file in its records`() throws {
        let (source, fixture) = (try Source(1000), try SocketFixture(.ipv4))
        #expect(fixture.output.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.open() }
        try fixture.peer.answerHello()
        waitUntil { fixture.output.streamStatus == .open }
        #expect(try fixture.output.write(contentsOf: source.file, range: 0..<1000) == 1000)
        let record = try fixture.peer.receiveRecord()
        #expect(record?.bytes == pattern(1000))
        fixture.closeBoth()
    }

    // MARK: Failures

    @Test func `a file that cannot be read is an error, and the stream goes on`() throws {
        let (source, fixture) = (try Source(10), try SocketFixture())
        let pipe = try TestPipe()
        try fixture.openBoth()
        let output = fixture.output!
        #expect(throws: Errno.noData) { try output.write(contentsOf: source.file, range: 10..<11) }
        #expect(throws: Errno.illegalSeek) { try output.write(contentsOf: pipe.readEnd, range: 0..<1) }
        #expect(throws: Errno.badFileDescriptor) {
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
            let (peer, other) = try SocketPeer.pair()
            let (input, output) = Stream.connection(descriptor: other, closeWhenDone: true)
            input.open()
            var accepted = 0
            let error = await thrownError {
                try await output.writeAll(contentsOf: source.file, range: 4..<20, accepted: &accepted)
            }
            #expect(accepted == 6 && error?.errno == .noData)
            #expect((error as? IOError)?.subject == "descriptor \(source.file.rawValue)")
            try await output.writeAll("more")
            input.close()
            output.close()
            #expect(peer.receiveToEnd() == Array(pattern(10)[4...]) + Array("more".utf8))
        }
    }

    @Test func `a peer that has closed fails the stream without a signal`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                signal(SIGPIPE, SIG_DFL)
                let file = try TemporaryFile(pattern(10_000))
                let descriptor = try FileDescriptor.open(file.path, .readOnly)
                let (peer, other) = try SocketPeer.pair()
                _ = fcntl(other.rawValue, F_SETFL, O_NONBLOCK)
                let (_, output) = Stream.connection(descriptor: other, closeWhenDone: true)
                output.open()
                peer.close()
                #expect(try output.write(contentsOf: descriptor, range: 0..<10_000) == -1)
                #expect((output.streamError as? IOError)?.errno == .brokenPipe)
            }
        }
    }

    @Test func `a range that begins below 0 traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let output = OutputStream.toMemory()
            _ = try output.write(contentsOf: .standardInput, range: -1..<1)
        }
        #expect(result.message.contains("A file has no bytes before its beginning"))
    }
}
