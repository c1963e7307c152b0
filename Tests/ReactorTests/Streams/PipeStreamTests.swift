import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct PipeStreamTests {
    @Test func `a pipe delivers one event for each read, up to its end`() throws {
        let (fixture, recorder) = (try Fixture(.pipe), Recorder())
        recorder.readsEverything(by: 4)
        fixture.stream.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == Fixture.content)
        let bytes = Stream.Event.hasBytesAvailable
        #expect(recorder.events == [.openCompleted, bytes, bytes, bytes, .endEncountered])
    }

    @Test func `a pipe does not delay a timer`() throws {
        let (pipe, recorder) = (try FileDescriptor.pipe(), Recorder())
        recorder.readsEverything()
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        input.start(recorder)
        Timer.scheduled(after: .milliseconds(1)) { _ in try? pipe.writeEnd.close() }
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.events.last == .endEncountered)
    }

    @Test(arguments: [true, false])
    func `a read waits for the first byte only`(isBlocking: Bool) async throws {
        let pipe = try FileDescriptor.pipe()
        if !isBlocking { _ = fcntl(pipe.readEnd.rawValue, F_SETFL, O_NONBLOCK) }
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        input.open()
        #expect(!input.hasBytesAvailable)
        let writer = try JoinableThread(name: "writer") { _ = try? pipe.writeEnd.writeAll([1, 2, 3]) }
        #expect(input.read(upTo: 1) == [1] && input.hasBytesAvailable)
        #expect(input.read(upTo: 100) == [2, 3])
        writer.join()
        try pipe.writeEnd.close()
        #expect(input.read(upTo: 1).isEmpty && input.streamStatus == .atEnd)
    }

    @Test func `hasBytesAvailable works while the stream is on a loop`() async throws {
        try await onItsOwnThread {
            let (fixture, recorder) = (try Fixture(.pipe), Recorder())
            recorder.onEvent = { [unowned recorder] stream, event in
                guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
                while input.hasBytesAvailable { recorder.bytes += input.read(upTo: 1) }
            }
            fixture.stream.start(recorder)
            RunLoop.current.serve { recorder.events.last == .endEncountered }
            #expect(recorder.bytes == Fixture.content && recorder.count(.hasBytesAvailable) == 1)
        }
    }

    @Test func `a FIFO waits for its first writer`() async throws {
        let folder = TemporaryFolder()
        let path = folder.fifo()
        let input = InputStream(path: path)
        input.open()
        #expect(input.streamStatus == .open && !input.hasBytesAvailable)
        nonisolated(unsafe) let reading = input
        let writer = try JoinableThread(name: "writer") {
            while reading.streamStatus != .reading {}
            let output = OutputStream(path: path)
            output.open()
            output.write([1, 2])
        }
        #expect(input.read(upTo: 10) == [1, 2])
        writer.join()
        #expect(input.read(upTo: 10).isEmpty && input.streamStatus == .atEnd)
    }

    @Test func `a FIFO delivers the bytes of its first writer`() {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        let path = folder.fifo()
        recorder.readsEverything()
        let input = InputStream(path: path)
        input.start(recorder)
        RunLoop.current.poll()
        #expect(recorder.events == [.openCompleted])
        let output = OutputStream(path: path)
        output.open()
        output.write([5, 6])
        output.close()
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == [5, 6] && recorder.events.last == .endEncountered)
    }

    @Test func `opening a FIFO without a reader for writing fails`() {
        let folder = TemporaryFolder()
        let output = OutputStream(path: folder.fifo())
        output.open()
        #expect(output.streamErrno == .noSuchAddressOrDevice)
    }

    @Test(arguments: [true, false])
    func `a full pipe delivers space once there is some, and lets the loop sleep until then`(
        isBlocking: Bool
    ) async throws {
        try await onItsOwnThread {
            let (pipe, recorder, loop) = (try FileDescriptor.pipe(), Recorder(), RunLoop.current)
            if !isBlocking { _ = fcntl(pipe.writeEnd.rawValue, F_SETFL, O_NONBLOCK) }
            let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
            var written = 0
            recorder.onEvent = { _, event in
                guard event == .hasSpaceAvailable else { return }
                written += pattern(5000).withUnsafeBufferPointer {
                    output.write($0.baseAddress!, maxLength: $0.count)
                }
            }
            output.start(recorder)
            loop.serve { !output.hasSpaceAvailable }
            #expect(loop.passesInAWhile() < 10)
            let before = recorder.events.count
            var buffer = [UInt8](repeating: 0, count: written)
            #expect(try buffer.withUnsafeMutableBytes { try pipe.readEnd.read(into: $0) } > 4096)
            loop.serve { recorder.events.count > before }
            try pipe.readEnd.close()
        }
    }

    @Test func `without a loop, a write to a blocking pipe accepts all bytes that fit`() throws {
        let pipe = try FileDescriptor.pipe()
        let capacity = Int(fcntl(pipe.writeEnd.rawValue, 1032))  // F_GETPIPE_SZ, which Glibc lacks
        let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        output.open()
        let bytes = [UInt8](repeating: 1, count: capacity)
        #expect(output.write(bytes, maxLength: capacity) == capacity)
        try pipe.readEnd.close()
    }

    @Test func `a write waits for room`() async throws {
        let pipe = try FileDescriptor.pipe()
        let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        output.open()
        let read = Shared<[UInt8]>([])
        let reader = try JoinableThread(name: "reader") {
            let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            input.open()
            while case let bytes = input.read(upTo: 1000), !bytes.isEmpty { read.update { $0 += bytes } }
        }
        #expect(output.write(pattern(300_000)) == 300_000)
        output.close()
        reader.join()
        #expect(read.value == pattern(300_000))
    }

    @Test(arguments: [O_NONBLOCK, 0])
    func `a stream leaves its descriptor's flags alone`(flags: CInt) throws {
        let (pipe, recorder) = (try FileDescriptor.pipe(), Recorder())
        let ends = try makeTerminal()
        let descriptors = [pipe.readEnd, pipe.writeEnd, ends.master, ends.slave]
        for descriptor in descriptors {
            _ = fcntl(
                descriptor.rawValue, F_SETFL, fcntl(descriptor.rawValue, F_GETFL) & ~O_NONBLOCK | flags)
        }
        let before = descriptors.map { fcntl($0.rawValue, F_GETFL) }
        let streams = [
            InputStream(descriptor: pipe.readEnd), OutputStream(descriptor: pipe.writeEnd),
            InputStream(descriptor: ends.master), OutputStream(descriptor: ends.slave),
        ]
        for stream in streams { stream.start(recorder) }
        RunLoop.current.serve { recorder.events.count == 6 }
        #expect(descriptors.map { fcntl($0.rawValue, F_GETFL) } == before)
        for stream in streams { stream.close() }
        #expect(descriptors.map { fcntl($0.rawValue, F_GETFL) } == before)
        for descriptor in descriptors { try descriptor.close() }
    }

    @Test func `a socket pair is read and written by descriptor`() async throws {
        try await onItsOwnThread {
            var numbers: [CInt] = [0, 0]
            try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &numbers) == 0)
            let (reader, writer) = (Recorder(), Recorder())
            reader.readsEverything()
            writer.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                (stream as! OutputStream).write(pattern(3000))
                stream.close()
            }
            let ends = numbers.map(FileDescriptor.init(rawValue:))
            let input = InputStream(descriptor: ends[0], closeWhenDone: true)
            let output = OutputStream(descriptor: ends[1], closeWhenDone: true)
            input.start(reader)
            output.start(writer)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(reader.bytes == pattern(3000) && reader.events.last == .endEncountered)
        }
    }

    @Test func `a terminal delivers bytes as they are typed`() throws {
        let (ends, recorder, loop) = (try makeTerminal(), Recorder(), RunLoop.current)
        recorder.readsEverything()
        let input = InputStream(descriptor: ends.slave, closeWhenDone: true)
        input.start(recorder)
        for text in ["ls", " -l"] {
            let before = recorder.bytes
            try ends.master.writeAll(Array(text.utf8))
            loop.serve { recorder.bytes == before + Array(text.utf8) }
        }
        try ends.master.close()
        #expect(loop.run(in: .default) == .finished)
        #expect(recorder.bytes == Array("ls -l".utf8))
    }
}
