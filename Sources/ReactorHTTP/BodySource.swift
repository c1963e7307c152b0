import Glibc
import Reactor

/// The source of the body of a transfer's request. Confined to the session's loop.
protocol BodySource: AnyObject {
    /// Nil once the transfer has ended.
    var owner: RunningTransfer? { get set }
    /// The number of bytes; nil if it is not known.
    var length: Int? { get }
    /// Whether ``take(into:)`` would not wait.
    var isReady: Bool { get }
    /// Copies the next bytes. Called inside libcurl: it calls none of the client's code.
    func take(into buffer: inout MutableRawSpan) -> SourceAnswer
    /// Reads more. Called outside libcurl.
    func fill()
    /// Whether a further attempt can send the same bytes.
    var isRepeatable: Bool { get }
    /// Begins anew; false if that is impossible.
    func rewind() -> Bool
    func end()
}

enum SourceAnswer {
    /// 0 at the end.
    case bytes(Int)
    /// The source calls its owner when there are bytes.
    case waiting
    case failed(HTTPError.Kind)
}

func makeSource(_ body: HTTPSource, _ multi: MultiHandle) throws(IOError) -> any BodySource {
    switch body.kind {
    case .bytes(let bytes): return MemorySource(bytes)
    case .file(let path):
        let kind: FileKind
        do throws(Errno) { kind = try FileKind(of: path) } catch {
            throw IOError(.open, path.string, error)
        }
        switch kind {
        case .stored(let length):
            return StreamSource(on: multi.runLoop, multi.modes, path.string, length: length) {
                InputStream(path: path)
            }
        case .passing:
            let stream = Transferred(InputStream(path: path))
            return StreamSource(
                on: multi.runLoop, multi.modes, path.string, length: nil, isRepeatable: false
            ) { stream.take() }
        }
    case .stream(let stream, let length):
        return StreamSource(
            on: multi.runLoop, multi.modes, "the body's stream", length: length, isRepeatable: false
        ) { stream.take() }
    }
}

/// The kind of file that a body is read from.
private enum FileKind {
    /// A regular file. Its length is nil if only reading shows it.
    case stored(length: Int?)
    /// A FIFO or a device, whose bytes can be read once.
    case passing

    init(of path: FilePath) throws(Errno) {
        let status = try FileStatus.of(path)
        switch status.fileType {
        case S_IFDIR: throw .isDirectory
        case S_IFREG:
            let size = Int(status.st_size)
            // /proc and /sys files occupy no blocks and report arbitrary sizes.
            self = .stored(length: status.st_blocks > 0 || Self.has(size, path) ? size : nil)
        default: self = .passing
        }
    }

    /// Whether the last of `size` bytes is in a file; or none, if the size is 0.
    private static func has(_ size: Int, _ path: FilePath) -> Bool {
        let flags = O_RDONLY | O_NONBLOCK | O_NOCTTY
        guard let file = try? SystemCall.open(path, flags) else { return true }
        defer { _ = Glibc.close(file) }
        var byte: [UInt8] = [0]
        let count = try? byte.withMutableBytes { (bytes) throws(Errno) in
            try SystemCall.read(file, at: max(size - 1, 0), into: &bytes)
        }
        return count == min(size, 1)
    }
}

private final class MemorySource: BodySource {
    var owner: RunningTransfer?
    private let bytes: [UInt8]
    private var offset = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var length: Int? { bytes.count }
    var isReady: Bool { true }
    var isRepeatable: Bool { true }

    func take(into buffer: inout MutableRawSpan) -> SourceAnswer {
        let count = bytes.withBytes { buffer.copy($0.extracting(droppingFirst: offset)) }
        offset += count
        return .bytes(count)
    }

    func fill() {}

    func rewind() -> Bool {
        offset = 0
        return true
    }

    func end() {}
}

/// Reads a stream a piece ahead, outside libcurl, because the stream may be the client's subclass. Gives no more bytes than
/// the server expects: the others would be the beginning of the connection's next request.
private final class StreamSource: BodySource, StreamDelegate {
    /// As much as libcurl takes at once, twice.
    private static let pieceSize = 262_144

    var owner: RunningTransfer?
    let length: Int?
    let isRepeatable: Bool
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]
    private let subject: String
    private let makeStream: () -> InputStream?
    private var stream: InputStream?
    private var piece: [UInt8] = []
    private var taken = 0
    /// The number of bytes that libcurl has taken.
    private var sentCount = 0
    private var isOpened = false
    private var isAtEnd = false
    private var isFilling = false
    private var fault: IOError?

    init(
        on runLoop: RunLoop, _ modes: [RunLoop.Mode], _ subject: String, length: Int?,
        isRepeatable: Bool = true, _ makeStream: @escaping () -> InputStream?
    ) {
        (self.runLoop, self.modes, self.subject, self.length) = (runLoop, modes, subject, length)
        self.isRepeatable = isRepeatable
        self.makeStream = makeStream
        _ = begin()
    }

    private func begin() -> Bool {
        (piece, taken, sentCount, isOpened, isAtEnd, fault) = ([], 0, 0, false, false, nil)
        guard let stream = makeStream() else { return false }
        end()
        self.stream = stream
        return true
    }

    // While a read runs the loop, its bytes come before an end that is known already.
    var isReady: Bool {
        stream == nil || sentCount == length || taken < piece.count || !isFilling && (isAtEnd || fault != nil)
    }

    func take(into buffer: inout MutableRawSpan) -> SourceAnswer {
        guard isReady else { return .waiting }
        if stream == nil { return .failed(.bodyNotRepeatable) }
        if let fault { return .failed(.read(fault)) }
        let count = min(piece.count - taken, length.map { $0 - sentCount } ?? .max)
        if count == 0, let length, sentCount < length {
            return .failed(.bodyTooShort(count: sentCount, length: length))
        }
        let copied = piece.withBytes { bytes in
            buffer.copy(bytes.extracting(droppingFirst: taken).extracting(first: count))
        }
        taken += copied
        sentCount += copied
        return .bytes(copied)
    }

    func fill() {
        // The stream may run the loop, which delivers its events.
        guard !isFilling else { return }
        isFilling = true
        defer { isFilling = false }
        open()
        if taken == piece.count { noteEnd() }
        guard let stream, taken == piece.count, !isAtEnd, fault == nil, stream.hasBytesAvailable else {
            return
        }
        piece = stream.read(upTo: Self.pieceSize)
        taken = 0
        if piece.isEmpty { noteEnd() }
    }

    private func open() {
        guard !isOpened, let stream else { return }
        isOpened = true
        stream.delegate = self
        for mode in modes { stream.schedule(in: runLoop, forMode: mode) }
        if stream.streamStatus == .notOpen { stream.open() }
    }

    private func noteEnd() {
        switch stream?.streamStatus {
        case .error?: fault = stream?.streamError as? IOError ?? IOError(.read, subject, .ioError)
        case .atEnd?, .closed?: isAtEnd = true
        default: break
        }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .endEncountered where taken < piece.count: isAtEnd = true
        case .endEncountered, .errorOccurred: noteEnd()
        default: fill()
        }
        if isReady { owner?.streamIsReady() }
    }

    func rewind() -> Bool {
        sentCount == 0 && piece.isEmpty && !isAtEnd && fault == nil && stream != nil || begin()
    }

    func end() {
        stream?.delegate = nil
        stream?.close()
        stream = nil
    }
}
