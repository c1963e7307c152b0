import Dispatch
import Glibc
import Reactor
import SystemPackage
import Testing

/// What happens to a stream around its hand-off.
enum StreamFate: String, CaseIterable, Sendable {
    case endedAndDelivered, endedPending, failedAndDelivered, failedPending, closed, closedElsewhere,
        cancelled, suspended
}

/// The source of a stream.
enum HandedKind: String, CaseIterable, Sendable {
    case memory, file, pipe, socket
}

/// One order of a stream's end and its hand-off.
struct HandoverCase: CustomTestStringConvertible, Sendable {
    let kind: HandedKind
    let fate: StreamFate
    let isBefore: Bool

    var testDescription: String { "\(kind.rawValue), \(fate.rawValue) \(isBefore ? "before" : "after")" }

    /// Every order. Memory cannot fail.
    static let all = HandedKind.allCases.flatMap { kind in
        StreamFate.allCases.flatMap { fate in
            [true, false].map { HandoverCase(kind: kind, fate: fate, isBefore: $0) }
        }
    }.filter { $0.kind != .memory || !$0.fails }

    var fails: Bool { fate == .failedAndDelivered || fate == .failedPending }
}

/// A stream of `"abcdef"`, or one that fails when it is opened or read.
final class HandedStream {
    static let content = Array("abcdef".utf8)

    let stream: InputStream
    private let folder = TemporaryFolder()
    private var writer: FileDescriptor?
    private var reader: FileDescriptor?
    private var peer: SocketPeer?

    init(_ kind: HandedKind, fails: Bool) throws {
        switch kind {
        case .memory: stream = InputStream(data: Self.content)
        case .file:
            stream = InputStream(
                path: fails ? folder.path.appending("missing") : try folder.file(Self.content))
        case .pipe:
            let pipe = try FileDescriptor.pipe()
            stream = InputStream(descriptor: fails ? pipe.writeEnd : pipe.readEnd)
            (reader, writer) = (pipe.readEnd, pipe.writeEnd)
            if fails { try closeReader() } else { try pipe.writeEnd.writeAll(Self.content) }
        case .socket where fails:
            stream =
                Stream.connection(to: try SocketAddress(unixPath: folder.path.appending("none"))).input
        case .socket:
            let (peer, other) = try SocketPeer.pair()
            peer.send(Self.content)
            self.peer = peer
            stream = Stream.connection(descriptor: other, closeWhenDone: true).input
        }
    }

    deinit {
        stream.close()
        for descriptor in [reader, writer] { try? descriptor?.close() }
    }

    /// Ends the stream after its bytes.
    func finish() {
        peer?.close()
        guard reader != nil else { return }  // the stream itself is the pipe's other end
        try? writer?.close()
        writer = nil
    }

    private func closeReader() throws {
        try reader?.close()
        reader = nil
    }

    /// Reads until the stream ends or fails, without a loop.
    func readAll() {
        stream.open()
        while !stream.read(upTo: 100).isEmpty {}
    }

    /// Reads the stream by a delegate on the calling thread's loop, until the delegate receives `last`.
    func deliver(until last: Stream.Event) {
        let recorder = Recorder()
        recorder.onEvent = { stream, event in
            if event == .hasBytesAvailable { _ = (stream as! InputStream).read(upTo: 100) }
        }
        stream.start(recorder)
        RunLoop.current.serve { recorder.events.last == last }
    }

    func closeElsewhere() {
        let handed = Carrier(stream)
        onThreads(1) { _ in handed.value.close() }
    }
}
