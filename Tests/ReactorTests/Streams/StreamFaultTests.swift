import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamFaultTests {
    private func fault(_ stream: Stream) -> Errno? {
        stream.open()
        return stream.streamErrno
    }

    @Test func `opening a file fails with its errno`() throws {
        let folder = TemporaryFolder()
        let file = try folder.file([1])
        let loop = folder.path.appending("loop")
        symlink(loop.string, loop.string)
        let long = folder.path.appending(String(repeating: "x", count: 300))
        let cases: [(FilePath, Errno)] = [
            (folder.path.appending("missing"), .noSuchFileOrDirectory),
            (file.appending("below"), .notDirectory), (loop, .tooManySymbolicLinkLevels),
            (long, .fileNameTooLong), (folder.path, .isDirectory),
        ]
        for (path, error) in cases {
            #expect(fault(InputStream(path: path)) == error)
            if error != .noSuchFileOrDirectory { #expect(fault(OutputStream(path: path)) == error) }
        }
        #expect(fault(OutputStream(path: folder.path.appending("no/file"))) == .noSuchFileOrDirectory)
        #expect(InputStream(fileAtPath: "/nowhere") != nil)
        #expect(OutputStream(toFileAtPath: "/nowhere/at/all", append: false) != nil)
    }

    @Test func `a descriptor that is a directory or closed fails at opening`() throws {
        let folder = TemporaryFolder()
        let directory = try FileDescriptor.open(folder.path, .readOnly)
        #expect(fault(InputStream(descriptor: directory)) == .isDirectory)
        #expect(openDescriptors(of: folder.path) == 1)
        #expect(fault(InputStream(descriptor: directory, closeWhenDone: true)) == .isDirectory)
        let unopened = FileDescriptor(rawValue: 1 << 20)
        #expect(fault(InputStream(descriptor: unopened)) == .badFileDescriptor)
        #expect(fault(OutputStream(descriptor: unopened)) == .badFileDescriptor)
    }

    @Test func `a descriptor that was opened for the other direction fails at the first byte`() throws {
        let (folder, recorder) = (TemporaryFolder(), Recorder())
        let file = try FileDescriptor.open(try folder.file([1]), .readOnly)
        let output = OutputStream(descriptor: file, closeWhenDone: true)
        output.open()
        #expect(output.write([1]) == 0 && output.streamErrno == .badFileDescriptor)
        let pipe = try FileDescriptor.pipe()
        recorder.readsEverything()
        let input = InputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        input.start(recorder)
        #expect(input.read(upTo: 1).isEmpty && input.streamErrno == .badFileDescriptor)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.events == [.errorOccurred])
        try pipe.readEnd.close()
    }

    @Test func `accepted bytes that cannot be written fail a stream that is on no loop`() throws {
        let file = OutputStream(path: "/dev/full")
        file.start(nil)
        #expect(file.write([1]) == 1)
        file.remove(from: .current, forMode: .default)
        waitUntil { file.streamStatus == .error }
        #expect(file.streamErrno == .noSpace)

        let pipe = try FileDescriptor.pipe()
        let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        output.writeBufferSize = 1_000_000
        output.open()
        #expect(output.write(pattern(500_000)) == 500_000)
        try pipe.readEnd.close()
        waitUntil { output.streamStatus == .error }
        #expect(output.streamErrno == .brokenPipe)
    }

    @Test func `a read error is delivered after the bytes before it`() throws {
        let (ends, recorder) = (try makeTerminal(), Recorder())
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
        let recorder = Recorder()
        recorder.readsEverything()
        let input = InputStream(path: "/proc/self/mem")
        if isScheduled { input.schedule(in: .current, forMode: .default) }
        input.delegate = recorder
        input.open()
        if isScheduled {
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(recorder.events == [.openCompleted, .hasBytesAvailable, .errorOccurred])
        } else {
            var byte: UInt8 = 0
            #expect(input.read(&byte, maxLength: 1) == -1)
        }
        #expect(input.streamErrno == .ioError)
    }

    @Test func `an empty file and an empty device end at once`() throws {
        let folder = TemporaryFolder()
        for path in [try folder.file([]), "/dev/null"] {
            let recorder = Recorder()
            recorder.readsEverything()
            InputStream(path: path).startAndRun(recorder)
            #expect(recorder.events == [.openCompleted, .hasBytesAvailable, .endEncountered])
            #expect(recorder.bytes.isEmpty)
        }
    }

    @Test func `an endless device can be read in part`() async throws {
        try await onItsOwnThread {
            let recorder = Recorder()
            recorder.onEvent = { [unowned recorder] stream, event in
                guard event == .hasBytesAvailable else { return }
                recorder.bytes += (stream as! InputStream).read(upTo: 50_000)
                if recorder.bytes.count > 400_000 { stream.close() }
            }
            InputStream(path: "/dev/zero").startAndRun(recorder)
            #expect(recorder.bytes.allSatisfy { $0 == 0 } && recorder.bytes.count > 400_000)
        }
    }

    @Test func `a full disk fails the write, off a loop`() {
        let output = OutputStream(path: "/dev/full")
        output.open()
        var byte: UInt8 = 0
        #expect(output.write(&byte, maxLength: 1) == -1)
        #expect(output.streamStatus == .error && output.streamErrno == .noSpace)
        output.close()
        #expect(output.streamErrno == .noSpace)
    }

    @Test func `a full disk is delivered on a loop, even if nothing more is written`() {
        let recorder = Recorder()
        let output = OutputStream(path: "/dev/full")
        recorder.onEvent = { [unowned recorder] stream, event in
            if event == .hasSpaceAvailable, recorder.events.count == 2 { output.write([1]) }
            if event == .errorOccurred { stream.close() }
        }
        output.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.events.last == .errorOccurred && output.streamErrno == .noSpace)
    }

    @Test func `closing reports a full disk`() {
        let output = OutputStream(path: "/dev/full")
        output.schedule(in: .current, forMode: .default)
        output.open()
        output.write([1])
        output.close()
        #expect(output.streamStatus == .error && output.streamErrno == .noSpace)
    }
}

extension Stream {
    fileprivate func startAndRun(_ recorder: Recorder) {
        start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
    }
}
