import CReactorTestSupport
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Two ends of which one reads what the other writes.
enum EndsKind: CaseIterable {
    case pipe, nonBlockingPipe, pipeMadeBlocking, terminal, terminalMadeBlocking, socket

    var isTerminal: Bool { self == .terminal || self == .terminalMadeBlocking }

    func makeEnds() throws -> (read: FileDescriptor, write: FileDescriptor) {
        switch self {
        case .pipe, .nonBlockingPipe, .pipeMadeBlocking:
            let ends = try FileDescriptor.pipe()
            for end in [ends.readEnd, ends.writeEnd] { end.setNonBlocking(self != .pipe) }
            return (ends.readEnd, ends.writeEnd)
        case .terminal, .terminalMadeBlocking:
            let ends = try makeTerminal()
            for end in [ends.master, ends.slave] { end.setNonBlocking(self == .terminalMadeBlocking) }
            return (ends.master, ends.slave)
        case .socket:
            let (one, other) = try socketPair()
            return (FileDescriptor(rawValue: one), FileDescriptor(rawValue: other))
        }
    }

    /// Does to an open stream's descriptor what another process that shares the open file may do.
    func share(_ descriptor: FileDescriptor) {
        if self == .pipeMadeBlocking || self == .terminalMadeBlocking { descriptor.setNonBlocking(false) }
    }
}

@Suite(.runLoop) struct PipeStreamTests {
    private let folder = TemporaryFolder()
    private let recorder = Recorder()
    private let loop = RunLoop.current

    @Test(arguments: EndsKind.allCases)
    func `bytes are delivered as they are written, and then the end`(kind: EndsKind) throws {
        let ends = try kind.makeEnds()
        // A terminal's program reads its end when the window closes.
        let (read, write) = kind.isTerminal ? (ends.write, ends.read) : ends
        recorder.readsEverything()
        let input = InputStream(descriptor: read, closeWhenDone: true)
        input.start(recorder)
        kind.share(read)
        for text in ["ls", "ls -l"] {
            try write.writeAll(Array(text.utf8.dropFirst(recorder.bytes.count)))
            loop.serve { recorder.bytes == Array(text.utf8) }
        }
        try write.close()
        #expect(loop.run(in: .default) == .finished)
        #expect(recorder.bytes == Array("ls -l".utf8) && recorder.events.last == .endEncountered)
    }

    @Test(arguments: EndsKind.allCases.filter { !$0.isTerminal })
    func `without a loop, a read waits for the first byte only`(kind: EndsKind) throws {
        let ends = try kind.makeEnds()
        let input = InputStream(descriptor: ends.read, closeWhenDone: true)
        input.open()
        kind.share(ends.read)
        #expect(!input.hasBytesAvailable)
        let writer = try JoinableThread(name: "writer") { _ = try? ends.write.writeAll([1, 2, 3]) }
        #expect(input.read(upTo: 1) == [1] && input.hasBytesAvailable && input.read(upTo: 100) == [2, 3])
        writer.join()
        try ends.write.close()
        #expect(input.read(upTo: 1).isEmpty && input.streamStatus == .atEnd)
    }

    @Test(arguments: [true, false])
    func `a FIFO waits for its first writer`(isScheduled: Bool) throws {
        let path = folder.fifo()
        let input = InputStream(path: path)
        recorder.readsEverything()
        if isScheduled { input.start(recorder) }
        input.open()
        if isScheduled { loop.settle() }
        #expect(
            input.streamStatus == .open && !input.hasBytesAvailable
                && !recorder.events.contains(.endEncountered))
        let (reading, loop) = (Carrier(input), loop)
        let writer = try JoinableThread(name: "writer") {
            if isScheduled {
                loop.untilAsleep()
            } else {
                waitUntil { reading.value.streamStatus == .reading }
            }
            OutputStream(path: path).writeAllAndClose("ab")
        }
        if isScheduled {
            #expect(loop.run(in: .default) == .finished)
            #expect(recorder.bytes == Array("ab".utf8) && recorder.events.last == .endEncountered)
        } else {
            #expect(input.read(upTo: 10) == Array("ab".utf8))
            writer.join()
            #expect(input.read(upTo: 10).isEmpty && input.streamStatus == .atEnd)
        }
    }

    @Test(arguments: [true, false])
    func `the loop of a full pipe sleeps until there is space`(isBlocking: Bool) throws {
        let pipe = try FileDescriptor.pipe()
        pipe.writeEnd.setNonBlocking(!isBlocking)
        let output = OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        var written = 0
        recorder.onEvent = { _, event in
            if event == .hasSpaceAvailable { written += output.writeOnce(pattern(5000)) }
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

    @Test(arguments: [true, false])
    func `a stream leaves its descriptor's flags alone`(isNonBlocking: Bool) throws {
        let (pipe, ends) = (try FileDescriptor.pipe(), try makeTerminal())
        let descriptors = [pipe.readEnd, ends.master, pipe.writeEnd, ends.slave]
        for descriptor in descriptors { descriptor.setNonBlocking(isNonBlocking) }
        let before = descriptors.map { fcntl($0.rawValue, F_GETFL) }
        let streams =
            descriptors[..<2].map { InputStream(descriptor: $0) }
            + descriptors[2...].map { OutputStream(descriptor: $0) as Stream }
        for stream in streams { stream.start(recorder) }
        loop.serve { recorder.events.count == 6 }
        #expect(descriptors.map { fcntl($0.rawValue, F_GETFL) } == before)
        for stream in streams { stream.close() }
        #expect(descriptors.map { fcntl($0.rawValue, F_GETFL) } == before)
        for descriptor in descriptors { try descriptor.close() }
    }
}

/// Reads and writes that wait, and what ends them.
@Suite(.runLoop) struct StreamWaitTests {
    @Test(arguments: EndsKind.allCases)
    func `closing from another thread ends a read that waits, and takes no byte`(kind: EndsKind) throws {
        let ends = try kind.makeEnds()
        let (input, count) = (Carrier(InputStream(descriptor: ends.read)), Shared(0))
        input.value.open()
        kind.share(ends.read)
        let reader = try JoinableThread(name: "reader") {
            var byte: UInt8 = 0
            count.value = input.value.read(&byte, maxLength: 1)
        }
        waitUntil { input.value.streamStatus == .reading }
        input.value.close()
        reader.join()
        #expect(count.value == -1 && input.value.streamStatus == .closed)
        // The descriptor was borrowed: the next byte is its owner's.
        _ = try ends.write.writeAll([7])
        var buffer: [UInt8] = [0, 0]
        #expect(try buffer.withUnsafeMutableBytes { try ends.read.read(into: $0) } == 1 && buffer[0] == 7)
        for end in [ends.read, ends.write] { try end.close() }
    }

    @Test(arguments: EndsKind.allCases, [(bufferSize: 0, closesReader: false), (10, false), (10, true)])
    func `a write that waits ends when the stream or, with a write buffer, its reader closes`(
        kind: EndsKind, ending: (bufferSize: Int, closesReader: Bool)
    ) throws {
        // A terminal's other end is not closed while its number is open elsewhere.
        if kind.isTerminal, ending.closesReader { return }
        let ends = try kind.makeEnds()
        let (output, thread) = (Carrier(OutputStream(descriptor: ends.write)), Answer<KernelThread>())
        output.value.writeBufferSize = ending.bufferSize
        output.value.open()
        kind.share(ends.write)
        let writer = try JoinableThread(name: "writer") {
            thread.give(.current)
            while output.value.writeOnce(pattern(10_000)) > 0 {}
        }
        let kernelThread = thread.wait()
        // A terminal may have room by now without reporting it: the thread's own state is what counts.
        waitUntil { output.value.streamStatus == .writing && kernelThread.isAsleep }
        if ending.closesReader { try ends.read.close() } else { output.value.close() }
        writer.join()
        #expect(output.value.streamStatus == (ending.closesReader ? .error : .closed))
        output.value.close()
        for end in [ends.write] + (ending.closesReader ? [] : [ends.read]) { try end.close() }
    }

    @Test func `closing a buffered output keeps the accepted bytes in order`() throws {
        let (peer, other) = try SocketPeer.pair()
        SocketPeer.narrow(other.rawValue)
        let (input, output) = Connection(descriptor: other).streams
        output.writeBufferSize = 1000
        for stream in [input, output] { stream.open() }
        let (writing, sent) = (Carrier(output), Shared(0))
        let writer = try JoinableThread(name: "writer") {
            while case let from = sent.value,
                case let count = writing.value.writeOnce(pattern(from + 700)[from...]), count > 0
            {
                sent.update { $0 += count }
            }
        }
        waitUntil { !output.hasSpaceAvailable && output.streamStatus == .writing }
        output.close()
        writer.join()
        let bytes = peer.receive(sent.value)
        #expect(bytes == pattern(sent.value) && peer.receiveNow(upTo: 1).isEmpty)
        input.close()
    }

    /// poll(2) promises `PIPE_BUF` for pipes only; a terminal that is stopped, or not read, accepts less.
    @Test(arguments: [true, false], [0, 10_000])
    func `a terminal that is not read does not block the loop`(isMaster: Bool, size: Int) throws {
        let terminal = try makeTerminal()
        let output = OutputStream(descriptor: isMaster ? terminal.master : terminal.slave)
        let recorder = Recorder()
        output.writeBufferSize = size
        var isFull = false
        recorder.onEvent = { _, event in
            if event == .hasSpaceAvailable { isFull = output.writeOnce(pattern(100_000)) < 100_000 }
        }
        output.start(recorder)
        RunLoop.current.serve { isFull }
        RunLoop.current.settle()
        #expect(output.streamError == nil)
        output.close()
        for end in [terminal.master, terminal.slave] { try end.close() }
    }

    /// A stream opens its pipe again, and must not be the reader that a writer waits for.
    @Test(arguments: [true, false])
    func `a pipe whose stream was closed has no reader`(closesWhenDone: Bool) throws {
        let pipe = try TestPipe("x")
        let input = InputStream(descriptor: pipe.give(pipe.readEnd), closeWhenDone: closesWhenDone)
        input.open()
        #expect(input.read(upTo: 1) == [0x78])
        input.close()
        if !closesWhenDone { try pipe.readEnd.close() }
        let output = pipe.makeOutput()
        output.open()
        _ = output.write([1])
        #expect(output.streamErrno == .brokenPipe)
        output.close()
        #expect(input.streamStatus == .closed)
    }

    @Test func `packets of a pipe stay packets`() throws {
        var ends: [CInt] = [-1, -1]
        try #require(reactor_test_packet_pipe(&ends) == 0)
        let (readEnd, writeEnd) = (ends[0], ends[1])
        let output = OutputStream(descriptor: FileDescriptor(rawValue: writeEnd), closeWhenDone: true)
        output.open()
        for packet in [[1, 2, 3], [4, 5]] as [[UInt8]] { #expect(output.write(packet) == packet.count) }
        output.close()
        let input = InputStream(descriptor: FileDescriptor(rawValue: readEnd), closeWhenDone: true)
        input.open()
        #expect(
            input.read(upTo: 10) == [1, 2, 3] && input.read(upTo: 10) == [4, 5] && input.read(upTo: 10) == [])
        input.close()
    }

    /// Two programs often share one standard output.
    @Test func `a pipe that others fill does not block the loop`() throws {
        let (pipe, recorder) = (try TestPipe(), Recorder())
        let output = OutputStream(descriptor: pipe.writeEnd)
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
        #expect(output.writeOnce(pattern(4096)) == 10 && output.writeOnce(pattern(4096)) == 0)
        output.close()
    }
}
