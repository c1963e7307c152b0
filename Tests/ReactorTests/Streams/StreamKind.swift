import Glibc
import Reactor
import SystemPackage
import Testing

/// Every kind of stream, for tests of them all.
enum StreamKind: String, CaseIterable, Sendable {
    case file, fifo, pipe, terminal, device, bytes, boundInput, socket, connection
    case outputFile, outputPipe, outputDevice, memory, buffer, boundOutput, outputSocket, outputConnection

    var isInput: Bool {
        switch self {
        case .file, .fifo, .pipe, .terminal, .device, .bytes, .boundInput, .socket, .connection: true
        default: false
        }
    }

    /// The kinds that are open when `open()` returns.
    static var opensAtOnce: [StreamKind] { allCases.filter { $0 != .connection && $0 != .outputConnection } }

    var transferEvent: Stream.Event { isInput ? .hasBytesAvailable : .hasSpaceAvailable }

    /// The kinds that end after a few bytes.
    static var finite: [StreamKind] {
        [.file, .fifo, .pipe, .bytes, .boundInput, .buffer, .socket, .connection]
    }
}

/// A stream of some kind, with what it needs. Inputs hold `"abcdef"`, or other bytes.
final class Fixture {
    let kind: StreamKind
    private(set) var stream: Stream!
    private let bytes: [UInt8]
    /// Whether a pipe or socket ends only with ``finish()``.
    private let isOpenEnded: Bool
    private var writer: FileDescriptor?
    private let folder = TemporaryFolder()
    private var others: [Stream] = []
    private var descriptors: [FileDescriptor] = []
    private var peers: [SocketPeer] = []
    private var host: SocketHost?
    private let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: 6)

    static let content = Array("abcdef".utf8)

    init(_ kind: StreamKind, _ bytes: [UInt8] = content, isOpenEnded: Bool = false) throws {
        (self.kind, self.bytes, self.isOpenEnded) = (kind, bytes, isOpenEnded)
        stream = kind.isInput ? try makeInput() : try makeOutput()
    }

    /// A stream of `kind` on the calling thread's loop, and its delegate, which has received the opening and the
    /// first bytes or space.
    static func started(_ kind: StreamKind, mode: RunLoop.Mode = .default) throws -> (Fixture, Recorder) {
        let (fixture, recorder) = (try Fixture(kind), Recorder())
        fixture.stream.start(recorder, mode: mode)
        RunLoop.current.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.openCompleted, kind.transferEvent])
        return (fixture, recorder)
    }

    deinit {
        finish()
        for descriptor in descriptors { try? descriptor.close() }
        stream?.close()
        memory.deallocate()
    }

    var input: InputStream { stream as! InputStream }

    func releaseStream() { stream = nil }

    /// Ends an open-ended input after its bytes.
    func finish() {
        try? writer?.close()
        writer = nil
    }

    /// Writes the bytes to `end`, on a thread of its own if they may not fit, and closes it.
    private func feed(_ end: FileDescriptor) throws {
        guard bytes.count > 4096 else {
            try end.writeAll(bytes)
            if isOpenEnded { writer = end } else { try end.close() }
            return
        }
        _ = try JoinableThread(name: "feed") { [bytes] in _ = try? end.closeAfter { try end.writeAll(bytes) }
        }
    }

    /// Moves `count` bytes, as a delegate does at its event.
    @discardableResult
    func move(_ count: Int) -> Int {
        if let input = stream as? InputStream { return input.read(upTo: count).count }
        return (stream as! OutputStream).write([UInt8](repeating: 1, count: count))
    }

    /// Moves up to `count` bytes by one call, and returns its result.
    func moveOnce(_ count: Int = 1) -> Int {
        var byte: UInt8 = 0
        if let input = stream as? InputStream { return input.read(&byte, maxLength: count) }
        return (stream as! OutputStream).write(&byte, maxLength: count)
    }

    var isReady: Bool {
        (stream as? InputStream)?.hasBytesAvailable ?? (stream as! OutputStream).hasSpaceAvailable
    }

    private func makeInput() throws -> InputStream {
        switch kind {
        case .file: return InputStream(path: try folder.file(bytes))
        case .device: return InputStream(path: "/dev/zero")
        case .bytes: return InputStream(data: bytes)
        case .fifo:
            let path = folder.fifo()
            let reader = try FileDescriptor.open(path, .readOnly, options: [.nonBlocking])
            let writer = try FileDescriptor.open(path, .writeOnly)
            try feed(writer)
            return InputStream(descriptor: reader, closeWhenDone: true)
        case .pipe:
            let pipe = try FileDescriptor.pipe()
            try feed(pipe.writeEnd)
            return InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        case .terminal:
            let pair = try makeTerminal()
            descriptors.append(pair.master)
            try pair.master.writeAll(bytes)
            return InputStream(descriptor: pair.slave, closeWhenDone: true)
        case .socket:
            let (peer, other) = try socketPair()
            try feed(FileDescriptor(rawValue: peer))
            return Connection(descriptor: FileDescriptor(rawValue: other)).streams.input
        case .connection:
            return Connection(to: try connect { [bytes] peer in peer.send(bytes) }).streams.input
        default:
            let pair = Stream.boundPair(bufferSize: bytes.count)
            pair.output.open()
            _ = pair.output.write(bytes)
            pair.output.close()
            return pair.input
        }
    }

    private func makeOutput() throws -> OutputStream {
        switch kind {
        case .outputFile: return OutputStream(path: folder.path.appending("file"))
        case .outputDevice: return OutputStream(path: "/dev/null")
        case .memory: return OutputStream.toMemory()
        case .buffer: return OutputStream(toBuffer: memory, capacity: 6)
        case .outputPipe:
            let pipe = try FileDescriptor.pipe()
            descriptors.append(pipe.readEnd)
            return OutputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        case .outputSocket:
            let (peer, other) = try SocketPeer.pair()
            peers.append(peer)
            return Connection(descriptor: other).streams.output
        case .outputConnection:
            return Connection(to: try connect { peer in _ = peer.receiveToEnd() }).streams.output
        default:
            let pair = Stream.boundPair(bufferSize: 65_536)
            pair.input.open()
            others.append(pair.input)
            return pair.output
        }
    }

    /// The address of a peer that accepts a connection.
    private func connect(_ body: @escaping @Sendable (SocketPeer) -> Void) throws -> SocketAddress {
        let host = try SocketHost(.ipv4, body)
        self.host = host
        return host.address
    }
}
