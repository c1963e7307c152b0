import CReactorLibcurl
import Glibc
import Reactor

/// Where a transfer puts the body of its response. Confined to the session's loop.
protocol BodySink: AnyObject {
    /// Nil once the transfer has ended.
    var owner: RunningTransfer? { get set }
    /// Whether the body is decoded if the server compresses it.
    var decodes: Bool { get }
    /// Whether ``receive(_:)`` may be called.
    var hasRoom: Bool { get }
    /// Why nothing more can be taken.
    var failure: HTTPError.Kind? { get }
    /// Whether the response has had all the bytes that the sink expects. libcurl knows only its `Content-Length`.
    var isWhole: Bool { get }
    /// Changes the request of an attempt.
    func prepare(_ request: inout HTTPRequest, hasBody: Bool)

    // Called inside libcurl: they call none of the client's code.

    func begin(_ response: HTTPTransfer.Response) -> SinkAnswer
    func receive(_ bytes: RawSpan)

    // Called outside libcurl.

    /// Passes on what has been received.
    func writeOut()
    /// Forgets what an attempt has received; false if that is impossible.
    func restart() -> Bool
    /// Called when the body is complete.
    func finish() -> SinkEnd
    /// Called when the transfer fails. Whether bytes that were received before have yet to be written: the sink then calls
    /// its owner.
    func drain() -> Bool
    /// Called instead of `finish()` when the transfer fails, or when the sink itself does.
    func abandon(_ error: HTTPError)
    /// Whether ``abandon(_:)`` calls none of the client's code, so that it need not wait until libcurl has returned.
    var canAbandonInsideLibcurl: Bool { get }
}

enum SinkAnswer {
    /// The body is taken. Its length, if it is known, and how much of it is there already.
    case accepts(expected: Int?, offset: Int)
    /// The body is not wanted: there are `offset` bytes already, and they are all.
    case ignores(offset: Int)
    case refuses(HTTPError.Kind)
    /// The request is sent again, as the sink prepares it now.
    case restarts
}

enum SinkEnd {
    /// With the body in memory.
    case finished([UInt8])
    /// The sink calls its owner.
    case later
    case failed(HTTPError.Kind)
}

extension BodySink {
    var decodes: Bool { true }
    var hasRoom: Bool { true }
    var failure: HTTPError.Kind? { nil }
    var isWhole: Bool { true }
    func prepare(_ request: inout HTTPRequest, hasBody: Bool) {}
    func writeOut() {}
    func finish() -> SinkEnd { .finished([]) }
    func drain() -> Bool { false }
    func abandon(_ error: HTTPError) {}
    var canAbandonInsideLibcurl: Bool { false }

    /// Takes the whole body of any response.
    func accept(_ response: HTTPTransfer.Response) -> SinkAnswer {
        let isEncoded = response.headerFields.contains(.contentEncoding)
        return .accepts(expected: isEncoded ? nil : response.contentLength, offset: 0)
    }
}

func makeSink(_ destination: HTTPDestination, _ outbox: Outbox, _ multi: MultiHandle) -> any BodySink {
    switch destination.kind {
    case .memory(let limit): MemorySink(limit: limit)
    case .handler: EventSink(outbox)
    case .stream(let stream, let buffer):
        StreamSink(stream.take() ?? closedStream(), on: multi.runLoop, multi.modes, buffer: buffer)
    case .file(let path, let resumes): FileSink(path, resumes: resumes, on: multi.runLoop, multi.modes)
    }
}

/// In place of the stream of a destination that is used a second time.
private func closedStream() -> OutputStream {
    let stream = OutputStream()
    stream.open()
    stream.close()
    return stream
}

/// Collects a body in memory.
private final class MemorySink: BodySink {
    /// The most memory that is allocated for what a server only announces.
    private static let reservedLimit = 1 << 20

    var owner: RunningTransfer?
    private(set) var failure: HTTPError.Kind?
    private let limit: Int
    private var expected = 0
    private var bytes: [UInt8] = []

    init(limit: Int) { self.limit = limit }

    func begin(_ response: HTTPTransfer.Response) -> SinkAnswer {
        expected = min(response.contentLength ?? 0, limit)
        return accept(response)
    }

    func receive(_ piece: RawSpan) {
        guard bytes.count + piece.byteCount <= limit else {
            failure = .bodyTooLarge(limit: limit)
            return
        }
        if bytes.isEmpty { bytes.reserveCapacity(min(expected, Self.reservedLimit)) }
        bytes.append(piece)
    }

    func restart() -> Bool {
        bytes = []
        return true
    }

    func finish() -> SinkEnd { .finished(bytes) }
}

/// Passes a body on to the callbacks, or to a task: collects what libcurl delivers in pieces of 16 KiB, and locks the
/// outbox once for each call of libcurl.
private final class EventSink: BodySink {
    /// As many bytes at once are the beginning of a whole piece: libcurl delivers 16 KiB if the server doesn't drip.
    private static let leastOfWholePiece = 8192

    var owner: RunningTransfer?
    private let outbox: Outbox
    private var hasBegun = false
    /// The head, until it is passed on.
    private var head: HTTPTransfer.Response?
    /// How many bytes will come; nil if that is not known.
    private var expected: Int?
    private var pieces: [[UInt8]] = []
    /// How much memory the pieces take.
    private var memory = 0
    /// No less memory than the pieces in the outbox take.
    private var waitingMemory = 0
    /// Whether the body is complete, and the transfer was suspended when it became so.
    private var isFinishing = false

    init(_ outbox: Outbox) { self.outbox = outbox }

    var hasRoom: Bool {
        if memory + waitingMemory < outbox.limit || hasPieceRoom { return true }
        waitingMemory = outbox.awaitRoom(beside: memory)
        return memory + waitingMemory < outbox.limit
    }

    /// Whether what libcurl delivers at once fits into the memory of the last piece.
    private var hasPieceRoom: Bool {
        guard let last = pieces.indices.last else { return false }
        return pieces[last].capacity - pieces[last].count >= Int(CURL_MAX_WRITE_SIZE)
    }

    func begin(_ response: HTTPTransfer.Response) -> SinkAnswer {
        hasBegun = true
        expected = response.contentLength
        head = response
        return accept(response)
    }

    func receive(_ bytes: RawSpan) {
        let count = bytes.byteCount
        if pieces.isEmpty || pieces[pieces.count - 1].count + count > Outbox.pieceSize {
            pieces.append(makePiece(count))
            memory += pieces[pieces.count - 1].memory
        }
        let last = pieces.count - 1
        memory -= pieces[last].memory
        pieces[last].append(bytes)
        memory += pieces[last].memory
    }

    /// An empty piece that begins with `count` bytes. Only one that may become large has memory for more.
    private func makePiece(_ count: Int) -> [UInt8] {
        guard count >= Self.leastOfWholePiece else { return [] }
        var piece = [] as [UInt8]
        let most = min(Outbox.pieceSize, outbox.limit)
        piece.reserveCapacity(max(count, min(expected ?? most, most)))
        return piece
    }

    func writeOut() {
        guard owner?.isSuspended != true else { return }
        deliver()
        guard isFinishing else { return }
        isFinishing = false
        owner?.sinkHasFinished(nil)
    }

    private func deliver() {
        if let head = head.take() { outbox.put(head) }
        guard !pieces.isEmpty else { return }
        waitingMemory = outbox.put(pieces)
        pieces.removeAll(keepingCapacity: true)
        memory = 0
    }

    func restart() -> Bool { !hasBegun }

    func finish() -> SinkEnd {
        isFinishing = owner?.isSuspended == true
        if isFinishing { return .later }
        deliver()
        return .finished([])
    }

    /// What was received before a failure is delivered before it.
    func abandon(_ error: HTTPError) { deliver() }
}
