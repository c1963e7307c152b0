import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Reads and writes that wait, and what ends them.
@Suite(.runLoop) struct StreamWaitTests {
    enum Kind: CaseIterable {
        case pipe, nonBlockingPipe, pipeMadeBlocking, terminal, terminalMadeBlocking, socket

        var isTerminal: Bool { self == .terminal || self == .terminalMadeBlocking }

        /// Two ends: one reads what the other writes.
        func makeEnds() throws -> (read: FileDescriptor, write: FileDescriptor) {
            switch self {
            case .pipe:
                let ends = try FileDescriptor.pipe()
                return (ends.readEnd, ends.writeEnd)
            case .nonBlockingPipe, .pipeMadeBlocking:
                let ends = try FileDescriptor.pipe()
                for end in [ends.readEnd, ends.writeEnd] { setNonBlocking(end, true) }
                return (ends.readEnd, ends.writeEnd)
            case .terminal, .terminalMadeBlocking:
                let ends = try makeTerminal()
                for end in [ends.master, ends.slave] { setNonBlocking(end, self == .terminalMadeBlocking) }
                return (ends.master, ends.slave)
            case .socket:
                let (peer, other) = try SocketPeer.pair()
                let read = try peer.descriptor.duplicate()
                return (read, other)
            }
        }

        /// Does to an open stream's descriptor what another process that shares the open file may do.
        func share(_ descriptor: FileDescriptor) {
            if self == .pipeMadeBlocking || self == .terminalMadeBlocking {
                setNonBlocking(descriptor, false)
            }
        }
    }

    @Test(arguments: Kind.allCases)
    func `closing from another thread ends a read that waits, and takes no byte`(kind: Kind) throws {
        let ends = try kind.makeEnds()
        let input = Carrier(InputStream(descriptor: ends.read))
        input.value.open()
        kind.share(ends.read)
        let reader = try RunLoopThread(name: "reader")
        let count = Shared<Int?>(nil)
        reader.runLoop.perform {
            var byte: UInt8 = 0
            count.value = input.value.read(&byte, maxLength: 1)
        }
        waitUntil { input.value.streamStatus == .reading }
        input.value.close()
        reader.runLoop.performAndWait {}
        #expect(count.value == -1 && input.value.streamStatus == .closed)
        // The descriptor was borrowed: the next byte is its owner's.
        _ = try ends.write.writeAll([7])
        var buffer: [UInt8] = [0, 0]
        #expect(try buffer.withUnsafeMutableBytes { try ends.read.read(into: $0) } == 1 && buffer[0] == 7)
        try ends.read.close()
        try ends.write.close()
    }

    /// Starts a thread that writes until it fails, and returns once it waits for room.
    private func startBlockedWriter(
        _ output: Carrier<OutputStream>
    ) throws -> (thread: RunLoopThread, hasEnded: Shared<Bool>) {
        let (writer, hasEnded, thread) = (
            try RunLoopThread(name: "writer"), Shared(false), Shared<KernelThread?>(nil)
        )
        writer.runLoop.perform {
            thread.value = .current
            while output.value.writeOnce(pattern(10_000)) > 0 {}
            hasEnded.value = true
        }
        // A terminal may have room by now without reporting it: the thread's own state is what counts.
        waitUntil { output.value.streamStatus == .writing && thread.value!.isAsleep }
        return (writer, hasEnded)
    }

    @Test(arguments: Kind.allCases)
    func `closing from another thread ends a write that waits`(kind: Kind) throws {
        let ends = try kind.makeEnds()
        let output = Carrier(OutputStream(descriptor: ends.write))
        output.value.open()
        kind.share(ends.write)
        let (writer, hasEnded) = try startBlockedWriter(output)
        output.value.close()
        writer.runLoop.performAndWait {}
        #expect(hasEnded.value && output.value.streamStatus == .closed)
        try ends.read.close()
        try ends.write.close()
    }

    @Test(arguments: Kind.allCases, [true, false])
    func `a write that waits for a full write buffer ends when the stream or its reader closes`(
        kind: Kind, closesReader: Bool
    ) async throws {
        // A terminal's other end is not closed while its number is open elsewhere.
        if kind.isTerminal, closesReader { return }
        try await onItsOwnThread {
            let ends = try kind.makeEnds()
            let output = Carrier(OutputStream(descriptor: ends.write))
            output.value.writeBufferSize = 10
            output.value.open()
            kind.share(ends.write)
            let (writer, hasEnded) = try startBlockedWriter(output)
            if closesReader { try ends.read.close() } else { output.value.close() }
            writer.runLoop.performAndWait {}
            #expect(hasEnded.value && output.value.streamStatus == (closesReader ? .error : .closed))
            output.value.close()
            if !closesReader { try ends.read.close() }
            try ends.write.close()
        }
    }

    @Test func `closing a buffered output keeps the accepted bytes in order`() async throws {
        try await onItsOwnThread {
            let (peer, other) = try SocketPeer.pair()
            SocketPeer.narrow(other.rawValue)
            let (input, output) = Stream.connection(descriptor: other, closeWhenDone: true)
            output.writeBufferSize = 1000
            for stream in [input, output] { stream.open() }
            let (writer, stream) = (try RunLoopThread(name: "writer"), Carrier(output))
            let sent = Shared(0)
            writer.runLoop.perform {
                while true {
                    let from = sent.value
                    let piece = Array(pattern(from + 700)[from...])
                    let count = stream.value.writeOnce(piece)
                    guard count > 0 else { return }
                    sent.update { $0 += count }
                }
            }
            while output.hasSpaceAvailable || output.streamStatus != .writing { sched_yield() }
            output.close()
            writer.runLoop.performAndWait {}
            let bytes = peer.receive(sent.value)
            #expect(bytes == pattern(sent.value) && peer.receiveNow(upTo: 1).isEmpty)
            input.close()
        }
    }

    /// poll(2) promises `PIPE_BUF` for pipes only; a terminal that is stopped, or not read, accepts less.
    @Test(arguments: [true, false], [0, 10_000])
    func `a terminal that is not read does not block the loop`(isMaster: Bool, size: Int) throws {
        let terminal = try makeTerminal()
        let descriptor = isMaster ? terminal.master : terminal.slave
        let (output, recorder) = (OutputStream(descriptor: descriptor), Recorder())
        output.writeBufferSize = size
        var isFull = false
        recorder.onEvent = { _, event in
            if event == .hasSpaceAvailable { isFull = output.writeOnce(pattern(100_000)) < 100_000 }
        }
        output.start(recorder)
        RunLoop.current.serve { isFull }
        RunLoop.current.poll()
        #expect(output.streamError == nil)
        output.close()
        try terminal.master.close()
        try terminal.slave.close()
    }

    /// Two programs often share one standard output.
    @Test func `a pipe that others fill does not block the loop`() async throws {
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            let (output, recorder) = (OutputStream(descriptor: pipe.writeEnd), Recorder())
            var wasFilled = false
            recorder.onEvent = { _, event in
                guard event == .hasSpaceAvailable, !wasFilled else { return }
                wasFilled = true
                let own = open("/proc/self/fd/\(pipe.writeEnd.rawValue)", O_WRONLY | O_NONBLOCK)
                while write(own, pattern(4096), 4096) > 0 {}
                close(own)
            }
            output.writeBufferSize = 10
            output.start(recorder)
            RunLoop.current.serve { wasFilled }
            #expect(output.writeOnce(pattern(4096)) == 10)
            #expect(output.writeOnce(pattern(4096)) == 0)
            output.close()
            try pipe.readEnd.close()
            try pipe.writeEnd.close()
        }
    }
}

private func setNonBlocking(_ descriptor: FileDescriptor, _ isNonBlocking: Bool) {
    let flags = fcntl(descriptor.rawValue, F_GETFL)
    _ = fcntl(descriptor.rawValue, F_SETFL, isNonBlocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK)
}
