import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Tests that affect a whole process, each in a process of its own.
@Suite(.runLoop) struct StreamProcessTests {
    @Test func `a closed reader is an error, not a signal`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                signal(SIGPIPE, SIG_DFL)
                for isScheduled in [true, false] {
                    let (pipe, recorder) = (try FileDescriptor.pipe(), Recorder())
                    let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
                    recorder.onEvent = { stream, event in
                        if event == .hasSpaceAvailable { output.write([1]) }
                        if event == .errorOccurred { stream.close() }
                    }
                    try pipe.readEnd.close()
                    if isScheduled { output.schedule(in: .current, forMode: .default) }
                    output.delegate = recorder
                    output.open()
                    if isScheduled { RunLoop.current.run(in: .default) } else { output.write([1]) }
                    try #require(output.streamErrno == .brokenPipe)
                }
            }
        }
    }

    @Test func `a pending SIGPIPE of other code stays pending`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGPIPE, SIG_DFL)
            var (mask, pending) = (sigset_t(), sigset_t())
            sigemptyset(&mask)
            sigaddset(&mask, SIGPIPE)
            pthread_sigmask(SIG_BLOCK, &mask, nil)
            raise(SIGPIPE)
            let pipe = try FileDescriptor.pipe()
            try pipe.readEnd.close()
            let output = OutputStream(descriptor: pipe.writeEnd)
            output.open()
            output.write([1])
            sigpending(&pending)
            try #require(output.streamErrno == .brokenPipe && sigismember(&pending, SIGPIPE) == 1)
        }
    }

    /// The kernel then returns the accepted part, and raises the signal too.
    @Test func `a reader that closes while a write waits for room is an error, not a signal`() async {
        await #expect(processExitsWith: .success) {
            signal(SIGPIPE, SIG_DFL)
            let pipe = try FileDescriptor.pipe()
            let reader = try JoinableThread(name: "reader") {
                let room = fcntl(pipe.writeEnd.rawValue, 1032)  // F_GETPIPE_SZ
                var taken: CInt = 0
                repeat { _ = ioctl(pipe.readEnd.rawValue, UInt(FIONREAD), &taken) } while taken < room
                try? pipe.readEnd.close()
            }
            let output = OutputStream(descriptor: pipe.writeEnd)
            output.open()
            let bytes = Array(repeating: UInt8(7), count: 1_000_000)
            let written = output.writeOnce(bytes)
            reader.join()
            try #require(written > 0 && written < bytes.count && output.streamError == nil)
            try #require(output.writeOnce(bytes) == -1 && output.streamErrno == .brokenPipe)
        }
    }

    @Test func `a blocked SIGPIPE is not left pending by a write`() async {
        await #expect(processExitsWith: .success) {
            var (mask, pending) = (sigset_t(), sigset_t())
            sigemptyset(&mask)
            sigaddset(&mask, SIGPIPE)
            pthread_sigmask(SIG_BLOCK, &mask, nil)
            let pipe = try FileDescriptor.pipe()
            try pipe.readEnd.close()
            let output = OutputStream(descriptor: pipe.writeEnd)
            output.open()
            output.write([1])
            sigpending(&pending)
            try #require(output.streamErrno == .brokenPipe && sigismember(&pending, SIGPIPE) == 0)
        }
    }

    @Test func `a file that reaches the size limit is an error, not a signal`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                // Dispatch's threads, of which this is one, block the signal.
                var mask = sigset_t()
                sigemptyset(&mask)
                sigaddset(&mask, SIGXFSZ)
                pthread_sigmask(SIG_UNBLOCK, &mask, nil)
                signal(SIGXFSZ, SIG_DFL)
                limitFileSize(to: 10_000)
                for isScheduled in [true, false] {
                    let (folder, recorder) = (TemporaryFolder(), Recorder())
                    let path = folder.path.appending("new")
                    let output = OutputStream(path: path)
                    recorder.onEvent = { stream, event in
                        if event == .hasSpaceAvailable { _ = output.writeOnce(pattern(6000)) }
                        if event == .errorOccurred { stream.close() }
                    }
                    if isScheduled { output.schedule(in: .current, forMode: .default) }
                    output.delegate = recorder
                    output.open()
                    if isScheduled {
                        RunLoop.current.run(in: .default)
                    } else {
                        output.write(pattern(20_000))
                    }
                    try #require(output.streamErrno == .fileTooLarge)
                    try #require(try content(of: path).count == 10_000)
                }
            }
        }
    }

    @Test func `a file whose worker has to wait does not block its loop`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                try onAThread {
                    let (folder, recorder, bytes) = (TemporaryFolder(), Recorder(), pattern(1_000_000))
                    let path = folder.path.appending("new")
                    let output = OutputStream(path: path)
                    output.start(recorder)
                    RunLoop.current.serve { recorder.events == [.openCompleted, .hasSpaceAvailable] }
                    // More work items than libdispatch has threads: the file's is behind them.
                    let gate = DispatchSemaphore(value: 0)
                    for _ in 0..<600 { DispatchQueue.global(qos: .userInitiated).async { gate.wait() } }
                    var written = output.write(bytes)
                    try #require(written > 0 && written < bytes.count && !output.hasSpaceAvailable)
                    try #require(output.writeOnce(bytes) == 0 && output.streamStatus == .open)
                    RunLoop.current.poll()
                    try #require(recorder.count(.hasSpaceAvailable) == 1)
                    recorder.onEvent = { _, event in
                        if event == .hasSpaceAvailable {
                            written += output.writeOnce(Array(bytes[written...]))
                        }
                    }
                    for _ in 0..<600 { gate.signal() }
                    RunLoop.current.serve { written == bytes.count }
                    output.close()
                    try #require(try content(of: path) == bytes)
                }
            }
        }
    }

    @Test(arguments: [true, false])
    func `a write beyond the size limit leaves a blocked SIGXFSZ as it was`(isPending: Bool) async {
        await #expect(processExitsWith: .success) { [isPending] in
            var (mask, pending) = (sigset_t(), sigset_t())
            sigemptyset(&mask)
            sigaddset(&mask, SIGXFSZ)
            pthread_sigmask(SIG_BLOCK, &mask, nil)
            if isPending { raise(SIGXFSZ) }
            limitFileSize(to: 0)
            let folder = TemporaryFolder()
            let output = OutputStream(path: folder.path.appending("new"))
            output.open()
            output.write([1])
            sigpending(&pending)
            try #require(output.streamErrno == .fileTooLarge)
            try #require(sigismember(&pending, SIGXFSZ) == (isPending ? 1 : 0))
        }
    }

    /// A high number: other threads get the lowest that is free.
    @Test func `a descriptor that is closed fails at opening`() {
        let closed = FileDescriptor(rawValue: 1_000_000)
        let (input, output) = (InputStream(descriptor: closed), OutputStream(descriptor: closed))
        input.open()
        output.open()
        #expect(input.streamErrno == .badFileDescriptor)
        #expect(output.streamErrno == .badFileDescriptor)
    }

    @Test func `no descriptor stays open`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                func once() throws {
                    for kind in StreamKind.allCases {
                        let (fixture, recorder) = (try Fixture(kind), Recorder())
                        recorder.onEvent = { _, _ in fixture.move(1) }
                        fixture.stream.start(recorder)
                        RunLoop.current.poll()
                        recorder.onEvent = { _, _ in }
                    }
                }
                try once()
                let before = openFiles()
                for _ in 0..<20 { try once() }
                // A chunk that is being fetched keeps its file open until it has been read.
                let deadline = Deadline.now.advanced(by: RunLoop.testPatience)
                while openFiles() > before, Deadline.now < deadline { sched_yield() }
                try #require(openFiles() <= before)
            }
        }
    }
}

private func limitFileSize(to size: rlim_t) {
    var limit = rlimit(rlim_cur: size, rlim_max: size)
    setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
}
