import Glibc
import Reactor
import SystemPackage
import Testing

/// What concerns a whole process happens in one of its own.
@Suite struct StreamProcessTests {
    @Test func `a reader that has gone is an error, not a signal`() async {
        await #expect(processExitsWith: .success) {
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
                try #require(output.streamError as? Errno == .brokenPipe)
            }
        }
    }

    @Test func `a SIGPIPE that waits for somebody else goes on waiting`() async {
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
            try #require(output.streamError as? Errno == .brokenPipe && sigismember(&pending, SIGPIPE) == 1)
        }
    }

    /// The kernel then answers what it has taken, and raises the signal all the same.
    @Test func `a reader that goes while a write waits for room is an error, not a signal`() async {
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
            try #require(output.writeOnce(bytes) == -1 && output.streamError as? Errno == .brokenPipe)
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
            try #require(output.streamError as? Errno == .brokenPipe && sigismember(&pending, SIGPIPE) == 0)
        }
    }

    /// A high number: what other threads open meanwhile gets the lowest that is free.
    @Test func `a descriptor that is closed fails at opening`() {
        let closed = FileDescriptor(rawValue: 1_000_000)
        let (input, output) = (InputStream(descriptor: closed), OutputStream(descriptor: closed))
        input.open()
        output.open()
        #expect(input.streamError as? Errno == .badFileDescriptor)
        #expect(output.streamError as? Errno == .badFileDescriptor)
    }

    @Test func `nothing stays open`() async {
        await #expect(processExitsWith: .success) {
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
            // A chunk that is being read ahead holds its file until it has come.
            let deadline = Deadline.now.advanced(by: RunLoop.testPatience)
            while openFiles() > before, Deadline.now < deadline { sched_yield() }
            try #require(openFiles() <= before)
        }
    }
}
