import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct FileStreamTests {
    @Test(arguments: [0, 1, 65_535, 65_536, 65_537, 400_000], [1000, 65_536, 1 << 20])
    func `a file is read whole and in order, through a delegate`(size: Int, step: Int) throws {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        let input = InputStream(path: try folder.file(pattern(size)))
        recorder.readsEverything(by: step)
        input.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == pattern(size))
        #expect(recorder.events.first == .openCompleted && recorder.events.last == .endEncountered)
    }

    @Test func `a file is read whole without a run loop`() async throws {
        let folder = TemporaryFolder()
        let input = InputStream(path: try folder.file(pattern(200_000)))
        input.open()
        var bytes: [UInt8] = []
        while input.hasBytesAvailable { bytes += input.read(upTo: 30_000) }
        #expect(bytes == pattern(200_000) && input.streamStatus == .atEnd)
    }

    @Test func `repeated reads in one callback keep the order`() async throws {
        try await onItsOwnThread {
            let (folder, recorder) = (TemporaryFolder(), Recorder())
            let input = InputStream(path: try folder.file(pattern(2_000_000)))
            recorder.onEvent = { [unowned recorder] stream, event in
                guard event == .hasBytesAvailable else { return }
                while case let bytes = input.read(upTo: 10_000), !bytes.isEmpty { recorder.bytes += bytes }
            }
            input.start(recorder)
            RunLoop.current.serve { recorder.events.last == .endEncountered }
            #expect(recorder.bytes == pattern(2_000_000))
        }
    }

    @Test func `reading while bytes are available does not read the file on the loop's thread`() async throws
    {
        try await onItsOwnThread {
            let (folder, recorder) = (TemporaryFolder(), Recorder())
            let input = InputStream(path: try folder.file(pattern(4_000_000)))
            recorder.onEvent = { [unowned recorder] stream, event in
                if event == .hasBytesAvailable {
                    repeat { recorder.bytes += input.read(upTo: 65_536) } while input.hasBytesAvailable
                }
                if event == .endEncountered { stream.close() }
            }
            let before = try bytesReadByThisThread()
            input.start(recorder)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.bytes == pattern(4_000_000))
            // The loop reads its eventfds too.
            #expect(try bytesReadByThisThread() - before < 65_536)
        }
    }

    /// How many bytes the calling thread has got from read(2) and its like (proc(5)).
    private func bytesReadByThisThread() throws -> Int {
        let lines = String(decoding: try content(of: "/proc/thread-self/io"), as: UTF8.self)
        return try #require(
            lines.split(separator: "\n").first?.split(separator: " ").last.flatMap { Int($0) })
    }

    @Test func `the end of a file is one more event, whose read returns no bytes`() throws {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        var counts: [Int] = []
        let input = InputStream(path: try folder.file([1, 2, 3]))
        recorder.onEvent = { _, event in
            if event == .hasBytesAvailable { counts.append(input.read(upTo: 2).count) }
        }
        input.start(recorder)
        RunLoop.current.serve { recorder.events.last == .endEncountered }
        #expect(counts == [2, 1, 0] && recorder.count(.hasBytesAvailable) == 3)
    }

    @Test func `opening creates or truncates a file, or appends to it`() throws {
        let folder = TemporaryFolder()
        let path = folder.path.appending("new")
        for (append, expected) in [(false, [1, 2]), (false, [1, 2]), (true, [1, 2, 1, 2])] {
            let output = OutputStream(path: path, append: append)
            output.open()
            #expect(output.write([1, 2]) == 2)
            output.close()
            #expect(try content(of: path) == expected.map(UInt8.init))
        }
        let untouched = OutputStream(path: folder.path.appending("untouched"))
        withExtendedLifetime(untouched) {
            #expect(access(folder.path.appending("untouched").string, F_OK) != 0)
        }
    }

    @Test func `a file is written whole and in order, through a delegate`() async throws {
        try await onItsOwnThread {
            let (folder, recorder) = (TemporaryFolder(), Recorder())
            let path = folder.path.appending("new")
            let output = OutputStream(path: path)
            var rest = pattern(1_500_000)[...]
            recorder.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                let count = rest.prefix(100_000).withUnsafeBufferPointer {
                    output.write($0.baseAddress!, maxLength: $0.count)
                }
                rest = rest.dropFirst(count)
                if rest.isEmpty { stream.close() }
            }
            output.start(recorder)
            #expect(RunLoop.current.run(in: .default) == .finished)
            let written = try content(of: path)
            #expect(written == pattern(1_500_000) && output.streamStatus == .closed)
        }
    }

    @Test func `bytes accepted while another thread closes the file are written`() async throws {
        try await onItsOwnThread {
            let (folder, bytes) = (TemporaryFolder(), pattern(20_000))
            let path = folder.path.appending("new")
            for _ in 0..<200 {
                let (output, accepted) = (OutputStream(path: path), Shared(0))
                let writer = Counter { stream, event in
                    guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
                    while case let count = output.writeOnce(bytes), count > 0 {
                        accepted.update { $0 += count }
                    }
                }
                output.start(writer)
                let closed = Carrier(output)
                let closing = try JoinableThread(name: "closing") {
                    accepted.wait { $0 > 200_000 ? () : nil }
                    closed.value.close()
                }
                #expect(RunLoop.current.run(in: .default) == .finished)
                closing.join()
                let written = try content(of: path).count
                #expect(written == accepted.value && output.streamStatus == .closed)
            }
        }
    }

    @Test func `bytes written on and off a loop arrive in order`() throws {
        let folder = TemporaryFolder()
        let path = folder.path.appending("new")
        let output = OutputStream(path: path)
        output.open()
        for part in 0..<20 {
            if part.isMultiple(of: 2) {
                output.schedule(in: .current, forMode: .default)
            } else {
                output.remove(from: .current, forMode: .default)
            }
            let bytes = Array(pattern(400_000)[part * 20_000..<(part + 1) * 20_000])
            #expect(output.write(bytes) == bytes.count)
        }
        output.close()
        let written = try content(of: path)
        #expect(written == pattern(400_000))
    }

    @Test func `the offset can be set before and after opening`() throws {
        let folder = TemporaryFolder()
        let path = try folder.file(pattern(1000))
        let key = Stream.PropertyKey.fileCurrentOffsetKey
        let input = InputStream(path: path)
        #expect(input.property(forKey: key) == nil)
        #expect(input.setProperty(Int64(10), forKey: key) && input.property(forKey: key) as? Int == 10)
        input.open()
        #expect(input.read(upTo: 2) == Array(pattern(1000)[10..<12]))
        #expect(input.property(forKey: key) as? Int == 12)
        #expect(input.setProperty(500, forKey: key) && input.read(upTo: 1) == [pattern(1000)[500]])
        for nonsense in [-1, "1", nil] as [Any?] { #expect(!input.setProperty(nonsense, forKey: key)) }
        let output = OutputStream(path: path, append: false)
        #expect(output.setProperty(UInt8(3), forKey: key))
        output.open()
        output.write([7])
        #expect(output.property(forKey: key) as? Int == 4)
        output.close()
        #expect(try content(of: path) == [0, 0, 0, 7])
        let appending = OutputStream(path: path, append: true)
        #expect(!appending.setProperty(0, forKey: key))
        appending.open()
        #expect(!appending.setProperty(0, forKey: key))
    }

    @Test func `the offset of a stream on a loop is that of the next byte for its client, and can be set`()
        async throws
    {
        try await onItsOwnThread {
            let (folder, recorder) = (TemporaryFolder(), Recorder())
            let key = Stream.PropertyKey.fileCurrentOffsetKey
            let input = InputStream(path: try folder.file(pattern(300_000)))
            input.start(recorder)
            RunLoop.current.serve { recorder.events.count == 2 }
            #expect(input.property(forKey: key) as? Int == 0)
            _ = input.read(upTo: 5)
            #expect(input.property(forKey: key) as? Int == 5)
            #expect(input.setProperty(250_000, forKey: key))
            var bytes: [UInt8] = []
            while bytes.count < 50_000 { bytes += input.read(upTo: 65_536) }
            #expect(bytes == Array(pattern(300_000)[250_000...]))
        }
    }

    @Test(arguments: [false, true])
    func `closing leaves a shared descriptor's offset where the client stopped reading`(isScheduled: Bool)
        async throws
    {
        try await onItsOwnThread {
            let (folder, recorder) = (TemporaryFolder(), Recorder())
            let path = try folder.file(pattern(300_000))
            let file = try FileDescriptor.open(path, .readOnly)
            try file.seek(offset: 100, from: .start)
            let input = InputStream(descriptor: file)
            if isScheduled { input.schedule(in: .current, forMode: .default) }
            input.delegate = recorder
            input.open()
            if isScheduled { RunLoop.current.serve { recorder.events.count == 2 } }
            #expect(input.read(upTo: 7) == Array(pattern(300_000)[100..<107]))
            input.close()
            #expect(try file.seek(offset: 0, from: .current) == 107)
            try file.close()
        }
    }

    @Test func `a file that shrinks while it is read ends, and one that grows is read on`() throws {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        let path = try folder.file(pattern(1_000_000))
        let input = InputStream(path: path)
        recorder.readsEverything(by: 10_000)
        let reads = recorder.onEvent
        recorder.onEvent = { [unowned recorder] stream, event in
            if recorder.events.count == 3 { truncate(path.string, 20_000) }
            reads(stream, event)
        }
        input.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.events.last == .endEncountered && input.streamError == nil)
        #expect(recorder.bytes == Array(pattern(1_000_000).prefix(recorder.bytes.count)))

        let growing = try folder.file(pattern(100_000), name: "growing")
        let (other, second) = (InputStream(path: growing), Recorder())
        second.readsEverything(by: 5_000)
        let previous = second.onEvent
        second.onEvent = { [unowned second] stream, event in
            if second.events.count == 3 {
                let file = OutputStream(path: growing, append: true)
                file.open()
                file.write(Array(pattern(300_000)[100_000...]))
            }
            previous(stream, event)
        }
        other.start(second)
        #expect(RunLoop.current.run(in: .default) == .finished)
        // The chunk that was read before the file grew may have been its end.
        #expect(second.bytes.count >= 100_000)
        #expect(second.bytes == Array(pattern(300_000).prefix(second.bytes.count)))
    }

    @Test func `a file that is unlinked while it is read is read to its end`() throws {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        let path = try folder.file(pattern(300_000))
        recorder.readsEverything(by: 10_000)
        let input = InputStream(path: path)
        input.start(recorder)
        unlink(path.string)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == pattern(300_000))
    }
}
