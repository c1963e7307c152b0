import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Tests that affect a whole process, each in a process of its own.
@Suite(.runLoop) struct StreamProcessTests {
    @Test(arguments: [SIGPIPE, SIGXFSZ])
    func `a failed write is an error, not a signal, and other code's signal stays pending`(
        number: CInt
    ) async {
        await #expect(processExitsWith: .success) { [number] in
            try onAThread {
                func isPending() -> Bool {
                    var pending = sigset_t()
                    sigpending(&pending)
                    return sigismember(&pending, number) == 1
                }
                var (mask, limit) = (sigset_t(), rlimit(rlim_cur: 10_000, rlim_max: 10_000))
                setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                signal(number, SIG_DFL)
                sigemptyset(&mask)
                sigaddset(&mask, number)
                for change in [SIG_UNBLOCK, SIG_BLOCK] {
                    pthread_sigmask(change, &mask, nil)
                    for isScheduled in [true, false] { try failToWrite(number, isScheduled: isScheduled) }
                    try #require(!isPending())
                }
                pthread_kill(pthread_self(), number)
                try failToWrite(number, isScheduled: false)
                try #require(isPending())
            }
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
            let bytes = pattern(1_000_000)
            let written = output.writeOnce(bytes)
            reader.join()
            try #require(written > 0 && written < bytes.count && output.streamError == nil)
            try #require(output.writeOnce(bytes) == -1 && output.streamErrno == .brokenPipe)
        }
    }

    @Test func `a file whose worker has to wait does not block its loop`() async {
        await #expect(processExitsWith: .success) {
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
                RunLoop.current.settle()
                try #require(recorder.count(.hasSpaceAvailable) == 1)
                recorder.onEvent = { _, event in
                    if event == .hasSpaceAvailable { written += output.writeOnce(bytes[written...]) }
                }
                for _ in 0..<600 { gate.signal() }
                RunLoop.current.serve { written == bytes.count }
                output.close()
                try #require(try content(of: path) == bytes)
            }
        }
    }

    @Test func `no descriptor stays open`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                func once() throws {
                    for kind in StreamKind.allCases {
                        let (fixture, recorder) = (try Fixture(kind), Recorder())
                        recorder.onEvent = { _, _ in fixture.move(1) }
                        fixture.stream.start(recorder)
                        RunLoop.current.settle()
                        recorder.onEvent = { _, _ in }
                    }
                    for (origin, way) in SocketOrigin.allCases.flatMap({ origin in
                        (0..<3).map { (origin, $0) }
                    }) {
                        let (fixture, reader) = (try SocketFixture(origin), Recorder())
                        try fixture.start(reader, Recorder())
                        _ = fixture.output.write(pattern(100))
                        if way == 0 { try fixture.peer.close() }
                        if way == 1 { fixture.closeBoth() }
                        RunLoop.current.serve { way > 0 || reader.events.count > 1 }
                    }
                }
                let sockets = openSockets()
                try once()
                // A chunk that is being fetched keeps its file open until it has been read.
                waitUntil { openSockets() == sockets }
                let before = ownDescriptors()
                for _ in 0..<Depth.of(full: 50, quick: 5) { try once() }
                waitUntil { ownDescriptors() <= before }
            }
        }
    }
}

/// Writes to a closed reader, or beyond the size limit, until the stream fails.
private func failToWrite(_ number: CInt, isScheduled: Bool) throws {
    let (folder, pipe, (peer, socket)) = (TemporaryFolder(), try FileDescriptor.pipe(), try SocketPeer.pair())
    let path = folder.path.appending("new")
    try pipe.readEnd.close()
    peer.close()
    let (isPipe, piped) = (number == SIGPIPE, OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true))
    let connected = Connection(descriptor: socket).streams.output
    for output in isPipe ? [piped, connected] : [OutputStream(path: path)] {
        let recorder = Recorder()
        recorder.onEvent = { stream, event in
            if event == .hasSpaceAvailable { _ = output.writeOnce(pattern(6000)) }
            if event == .errorOccurred { stream.close() }
        }
        if isScheduled {
            output.start(recorder)
            RunLoop.current.run(in: .default)
        } else {
            output.open()
            while output.writeOnce(pattern(6000)) > 0 {}
        }
        try #require(output.streamErrno == (isPipe ? .brokenPipe : .fileTooLarge))
    }
    if !isPipe { try #require(try content(of: path).count == 10_000) }
}
