import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct FileStreamTests {
    private let folder = TemporaryFolder()
    private let key = Stream.PropertyKey.fileCurrentOffsetKey
    private let recorder = Recorder()
    private let loop = RunLoop.current
    private var newPath: FilePath { folder.path.appending("new") }

    private func runToTheEnd(of stream: Stream) {
        stream.start(recorder)
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [0, 1, 65_535, 65_536, 65_537, 400_000], [1000, 65_536, 1 << 20])
    func `a file is read whole and in order, through a delegate`(size: Int, step: Int) throws {
        recorder.readsEverything(by: step)
        runToTheEnd(of: InputStream(path: try folder.file(pattern(size))))
        #expect(recorder.bytes == pattern(size))
        #expect(recorder.events.first == .openCompleted && recorder.events.last == .endEncountered)
    }

    /// Reading only what is available does not read the file on the loop's thread.
    @Test(arguments: [true, false])
    func `repeated reads in one callback keep the order`(readsOnlyAvailable: Bool) throws {
        let input = InputStream(path: try folder.file(pattern(2_000_000)))
        recorder.onEvent = { [recorder] stream, event in
            if event == .endEncountered { stream.close() }
            guard event == .hasBytesAvailable else { return }
            var bytes: [UInt8] = []
            repeat {
                bytes = input.read(upTo: 65_536)
                recorder.bytes += bytes
            } while readsOnlyAvailable ? input.hasBytesAvailable : !bytes.isEmpty
        }
        let before = try bytesReadByThisThread()
        runToTheEnd(of: input)
        #expect(recorder.bytes == pattern(2_000_000))
        // The loop reads its eventfds too.
        if readsOnlyAvailable { #expect(try bytesReadByThisThread() - before < 65_536) }
        recorder.onEvent = { _, _ in }
    }

    /// How many bytes the calling thread has got from read(2) and its like (proc(5)).
    private func bytesReadByThisThread() throws -> Int {
        let lines = String(decoding: try content(of: "/proc/thread-self/io" as FilePath), as: UTF8.self)
        return try #require(
            lines.split(separator: "\n").first?.split(separator: " ").last.flatMap { Int($0) })
    }

    @Test func `the end of a file is one more event, whose read returns no bytes`() throws {
        let (short, empty) = (try folder.file([1, 2, 3]), try folder.file([], name: "empty"))
        for (path, counts) in [(short, [2, 1, 0]), (empty, [0]), ("/dev/null", [0])] {
            let (input, recorder) = (InputStream(path: path), Recorder())
            var read: [Int] = []
            recorder.onEvent = { _, event in
                if event == .hasBytesAvailable { read.append(input.read(upTo: 2).count) }
            }
            input.start(recorder)
            loop.serve { recorder.events.last == .endEncountered }
            #expect(read == counts)
        }
    }

    @Test func `opening creates or truncates a file, or appends to it`() throws {
        withExtendedLifetime(OutputStream(path: newPath)) { #expect(folder.names.isEmpty) }
        for (append, expected) in [(false, [1, 2]), (false, [1, 2]), (true, [1, 2, 1, 2])] {
            let output = OutputStream(path: newPath, append: append)
            output.open()
            #expect(output.write([1, 2]) == 2)
            output.close()
            #expect(try content(of: newPath) == expected.map(UInt8.init))
        }
    }

    @Test func `bytes accepted while another thread closes the file are written`() throws {
        let bytes = pattern(20_000)
        for _ in 0..<20 {
            let (output, accepted) = (OutputStream(path: newPath), Shared(0))
            let writer = Counter { stream, event in
                guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
                while case let count = output.writeOnce(bytes), count > 0 { accepted.update { $0 += count } }
            }
            output.start(writer, on: loop)
            let closed = Carrier(output)
            let closing = try JoinableThread(name: "closing") {
                accepted.wait { $0 > 200_000 ? () : nil }
                closed.value.close()
            }
            #expect(loop.run(in: .default) == .finished)
            closing.join()
            #expect(try content(of: newPath).count == accepted.value && output.streamStatus == .closed)
        }
    }

    @Test
    func `a path is relative to the folder at the opening, and a new file has the mode that umask leaves`()
        async
    {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let (made, used) = (TemporaryFolder(), TemporaryFolder())
                chdir(made.path.string)
                let (output, input) = (OutputStream(path: "file"), InputStream(path: "file"))
                chdir(used.path.string)
                umask(0o027)
                output.open()
                #expect(output.write("text") == 4)
                output.close()
                #expect(made.names == [] && used.names == ["file"])
                var status = stat()
                #expect(stat(used.path("file"), &status) == 0 && status.st_mode & 0o777 == 0o640)
                #expect(input.readAll() == "text")
            }
        }
    }

    @Test func `bytes written on and off a loop arrive in order`() throws {
        let (output, bytes) = (OutputStream(path: newPath), pattern(4_000_000))
        output.open()
        for part in 0..<20 {
            if part.isMultiple(of: 2) {
                output.schedule(in: loop, forMode: .default)
            } else {
                output.remove(from: loop, forMode: .default)
            }
            #expect(output.write(bytes[part * 200_000..<(part + 1) * 200_000]) == 200_000)
        }
        output.close()
        #expect(try content(of: newPath) == bytes)
    }

    /// The chunk that was read before the file changed may have been its end.
    @Test(arguments: [20_000, 1_500_000], [true, false])
    func `a file may change its size or be unlinked while it is read`(newSize: Int, isUnlinked: Bool) throws {
        let path = try folder.file(pattern(1_000_000))
        let file = try FileDescriptor.open(path, .writeOnly, options: .append)
        recorder.readsEverything(by: 10_000)
        let (reads, counted) = (recorder.onEvent, recorder)
        recorder.onEvent = { [unowned counted] stream, event in
            if counted.events.count == 3, newSize < 1_000_000 { ftruncate(file.rawValue, newSize) }
            if counted.events.count == 3, newSize > 1_000_000 {
                _ = try? file.writeAll(pattern(newSize)[1_000_000...])
            }
            reads(stream, event)
        }
        let input = InputStream(path: path)
        input.start(recorder)
        if isUnlinked { unlink(path.string) }
        #expect(loop.run(in: .default) == .finished)
        #expect(recorder.events.last == .endEncountered && input.streamError == nil)
        #expect(recorder.bytes == Array(pattern(1_500_000).prefix(recorder.bytes.count)))
        #expect(recorder.bytes.count >= min(newSize, 1_000_000))
        try file.close()
    }

    @Test func `the offset can be set before and after opening`() throws {
        let path = try folder.file(pattern(1000))
        let input = InputStream(path: path)
        #expect(input.property(forKey: key) == nil)
        #expect(input.setProperty(Int64(10), forKey: key) && input.property(forKey: key) as? Int == 10)
        input.open()
        #expect(input.read(upTo: 2) == Array(pattern(1000)[10..<12]))
        #expect(input.property(forKey: key) as? Int == 12)
        #expect(input.setProperty(500, forKey: key) && input.read(upTo: 1) == [pattern(1000)[500]])
        let output = OutputStream(path: path)
        #expect(output.setProperty(UInt8(3), forKey: key))
        output.open()
        _ = output.write([7])
        #expect(output.property(forKey: key) as? Int == 4)
        output.close()
        #expect(try content(of: path) == [0, 0, 0, 7])
        #expect(!output.setProperty(0, forKey: key) && output.property(forKey: key) as? Int == 4)
        for nonsense in [-1, Int64.min, "1", nil] as [Any?] {
            #expect(!input.setProperty(nonsense, forKey: key))
        }
        while input.streamStatus == .open { _ = input.read(upTo: 1000) }
        #expect(!input.setProperty(0, forKey: key))
    }

    @Test func `the offset of a stream on a loop is that of the client's next byte`() throws {
        let (input, recorder) = (InputStream(path: try folder.file(pattern(300_000))), Recorder())
        input.start(recorder)
        RunLoop.current.serve { recorder.events.count == 2 }
        #expect(input.property(forKey: key) as? Int == 0)
        _ = input.read(upTo: 5)
        #expect(input.property(forKey: key) as? Int == 5 && input.setProperty(250_000, forKey: key))
        var bytes: [UInt8] = []
        while bytes.count < 50_000 { bytes += input.read(upTo: 65_536) }
        #expect(bytes == Array(pattern(300_000)[250_000...]))
    }

    @Test(arguments: [false, true])
    func `closing leaves a shared offset where the client stopped reading`(isScheduled: Bool) throws {
        let file = try FileDescriptor.open(try folder.file(pattern(300_000)), .readOnly)
        try file.seek(offset: 100, from: .start)
        let (input, recorder) = (InputStream(descriptor: file), Recorder())
        if isScheduled {
            input.start(recorder)
            RunLoop.current.serve { recorder.events.count == 2 }
        }
        input.open()
        #expect(input.read(upTo: 7) == Array(pattern(300_000)[100..<107]))
        input.close()
        #expect(try file.seek(offset: 0, from: .current) == 107)
        try file.close()
    }

    @Test func `a descriptor that appends, even since its opening, has no offset to set`() throws {
        let path = try folder.file([1, 2, 3])
        let file = try FileDescriptor.open(path, .readWrite)
        let (output, late) = (OutputStream(descriptor: file), OutputStream(descriptor: file))
        output.open()
        #expect(output.setProperty(1, forKey: key))
        #expect(fcntl(file.rawValue, F_SETFL, O_APPEND) == 0)
        for stream in [output, late, OutputStream(path: path, append: true)] {
            #expect(!stream.setProperty(0, forKey: key))
            stream.open()
            #expect(!stream.setProperty(0, forKey: key))
            #expect(stream.write([4]) == 1)
            stream.close()
        }
        #expect(try content(of: path) == [1, 2, 3, 4, 4, 4])
        let input = InputStream(descriptor: file, closeWhenDone: true)
        #expect(input.setProperty(2, forKey: key))
        input.open()
        #expect(input.read(upTo: 2) == [3, 4])
    }

    @Test(arguments: StreamKind.allCases.filter { $0 != .file && $0 != .outputFile })
    func `only regular files have an offset to set`(kind: StreamKind) throws {
        let (fixture, fifo) = (try Fixture(kind), folder.fifo())
        for _ in 0..<2 {
            #expect(!fixture.stream.setProperty(0, forKey: key))
            fixture.stream.open()
        }
        #expect(!InputStream(path: fifo).setProperty(0, forKey: key))
    }
}

@Suite(.runLoop) struct StreamFaultTests {
    private let folder = TemporaryFolder()
    private let recorder = Recorder()

    private func fault(_ stream: Stream) -> Errno? {
        stream.open()
        return stream.streamErrno
    }

    @Test func `opening a file fails with its errno`() throws {
        let loop = folder.path.appending("loop")
        symlink(loop.string, loop.string)
        let long = folder.path.appending(String(repeating: "x", count: 300))
        for (path, error) in [
            (folder.path.appending("no/file"), .noSuchFileOrDirectory),
            (try folder.file([1]).appending("below"), .notDirectory), (loop, .tooManySymbolicLinkLevels),
            (long, .fileNameTooLong), (folder.path, .isDirectory),
        ] as [(FilePath, Errno)] {
            #expect(fault(InputStream(path: path)) == error && fault(OutputStream(path: path)) == error)
        }
        // A FIFO that nothing reads.
        #expect(fault(OutputStream(path: folder.fifo())) == .noSuchAddressOrDevice)
        #expect(InputStream(fileAtPath: "/nowhere") != nil)
        #expect(OutputStream(toFileAtPath: "/nowhere/at/all", append: false) != nil)
    }

    @Test func `a descriptor that was opened for the other direction fails to open`() throws {
        let (path, (readEnd, writeEnd)) = (try folder.file([1]), try FileDescriptor.pipe())
        for (descriptor, isWritten) in [
            (try FileDescriptor.open(path, .readOnly), true), (try .open(path, .writeOnly), false),
            (readEnd, true), (writeEnd, false),
        ] {
            let recorder = Recorder()
            recorder.readsEverything()
            let stream =
                isWritten
                ? OutputStream(descriptor: descriptor, closeWhenDone: true)
                : InputStream(descriptor: descriptor, closeWhenDone: true)
            stream.start(recorder)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.events == [.errorOccurred] && stream.streamErrno == .badFileDescriptor)
        }
    }

    @Test func `a read error is delivered after the bytes before it`() throws {
        let ends = try makeTerminal()
        recorder.readsEverything(by: 2)
        try ends.slave.writeAll([1, 2, 3])
        let input = InputStream(descriptor: ends.master, closeWhenDone: true)
        input.start(recorder)
        RunLoop.current.serve { recorder.bytes.count == 2 }
        try ends.slave.close()
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == [1, 2, 3] && recorder.events.last == .errorOccurred)
        #expect(recorder.count(.errorOccurred) == 1 && recorder.count(.endEncountered) == 0)
        #expect(input.streamErrno == .ioError && input.streamStatus == .error)
    }

    @Test(arguments: [true, false])
    func `a file that cannot be read fails its stream`(isScheduled: Bool) {
        recorder.readsEverything()
        let input = InputStream(path: "/proc/self/mem")
        if isScheduled {
            input.start(recorder)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.events == [.openCompleted, .hasBytesAvailable, .errorOccurred])
        } else {
            var byte: UInt8 = 0
            input.open()
            #expect(input.read(&byte, maxLength: 1) == -1)
        }
        #expect(input.streamErrno == .ioError)
    }

    @Test func `a flush says why the bytes that it has waited for are lost`() {
        // The disk may be faster than the flush: then the stream has failed before.
        for _ in 0..<200 {
            let output = OutputStream(path: "/dev/full")
            output.schedule(in: .current, forMode: .default)
            output.open()
            let count = output.writeOnce([1])
            let flush = Result { try output.flushAndWait() }
            #expect(count == 1)
            #expect(throws: IOError.self) { try flush.get() }
            output.close()
            #expect(output.streamErrno == .noSpace)
        }
    }

    enum FullDisk: CaseIterable {
        case offLoop, onLoop, afterLoop, atClosing
    }

    @Test(arguments: FullDisk.allCases)
    func `a full disk fails the stream, even if nothing more is written`(place: FullDisk) {
        let output = OutputStream(path: "/dev/full")
        if place != .offLoop { output.schedule(in: .current, forMode: .default) }
        recorder.onEvent = { stream, event in if event == .errorOccurred { stream.close() } }
        output.delegate = recorder
        output.open()
        var byte: UInt8 = 0
        #expect(output.write(&byte, maxLength: 1) == (place == .offLoop ? -1 : 1))
        switch place {
        case .onLoop:
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.events.last == .errorOccurred)
        case .afterLoop:
            output.remove(from: .current, forMode: .default)
            waitUntil { output.streamStatus == .error }
        case .offLoop, .atClosing: break
        }
        output.close()
        #expect(output.streamStatus == .error && output.streamErrno == .noSpace)
    }
}
