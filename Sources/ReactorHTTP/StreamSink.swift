import Reactor

/// Writes a body to a stream: what the stream accepts, and the rest of one piece when it has room again.
///
/// Streams of this library are written inside libcurl's callback. A subclass may be the client's code: it is opened,
/// written and closed when libcurl has returned.
final class StreamSink: BodySink, StreamDelegate {
    /// More has been needed only for what libcurl decodes at once.
    private static let keptCapacity = 1 << 20

    var owner: RunningTransfer?
    private(set) var failure: HTTPError.Kind?
    /// Called when all has been written and the stream is closed, or with what has failed.
    var ended: ((HTTPError.Kind?) -> Void)?
    private let stream: OutputStream
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]
    private let buffer: BoundBuffer?
    private let path: String
    /// How many bytes to collect before they are written; 0 to write each piece at once.
    private let batchSize: Int
    private var rest: [UInt8] = []
    private var written = 0
    private var isOpened = false
    private var isWriting = false
    private var hasReceived = false
    private var ending = Ending.none

    /// Whether the body is complete: `draining` if the transfer has failed.
    private enum Ending { case none, finishing, draining }

    init(
        _ stream: OutputStream, on runLoop: RunLoop, _ modes: [RunLoop.Mode], buffer: BoundBuffer? = nil,
        path: String = "the stream", batchSize: Int = 0
    ) {
        (self.stream, self.buffer, self.path, self.batchSize) = (stream, buffer, path, batchSize)
        (self.runLoop, self.modes) = (runLoop, modes)
    }

    private var isOfLibrary: Bool { type(of: stream) == OutputStream.self }

    func open() {
        guard !isOpened else { return }
        isOpened = true
        stream.delegate = self
        for mode in modes { stream.schedule(in: runLoop, forMode: mode) }
        if stream.streamStatus == .notOpen { stream.open() }
        noteFailure()
    }

    var hasRoom: Bool { written == rest.count || rest.count - written < batchSize }

    func begin(_ response: HTTPTransfer.Response) -> SinkAnswer {
        if let failure { return .refuses(failure) }
        hasReceived = true
        return accept(response)
    }

    func restart() -> Bool { !hasReceived }

    // MARK: Writing

    func receive(_ bytes: RawSpan) {
        let count = isOfLibrary && batchSize == 0 && written == rest.count ? write(bytes) : 0
        guard count < bytes.byteCount, failure == nil else { return }
        if written == rest.count {
            rest.removeAll(keepingCapacity: rest.capacity <= Self.keptCapacity)
            written = 0
        }
        rest.append(bytes.extracting(droppingFirst: count))
        if batchSize > 0, !hasRoom { writeRest() }
    }

    func writeOut() {
        open()
        if ending != .none || batchSize == 0 || !hasRoom { writeRest() }
        guard ending != .none, written == rest.count || failure != nil, !waitsForDisk() else { return }
        // A stream that drains is closed with the error.
        if ending != .draining { close() }
        ending = .none
        ended?(failure)
    }

    /// Whether the stream's close would wait for a disk; ``writeOut()`` is called again when it would not.
    private func waitsForDisk() -> Bool {
        guard batchSize > 0, failure == nil else { return false }
        if stream.isFlushed {
            noteFailure()
            return false
        }
        let sink = LoopOwned(self, on: runLoop)
        stream.whenFlushed { [runLoop, modes] in
            runLoop.perform(inModes: modes) { sink.value.writeOut() }
        }
        return true
    }

    private func writeRest() {
        // The stream may run the loop, which delivers its events.
        guard written < rest.count, failure == nil, !isWriting else { return }
        isWriting = true
        defer { isWriting = false }
        while written < rest.count {
            let count = rest.withBytes { write($0.extracting(droppingFirst: written)) }
            written += count
            // A subclass may have room again without an event.
            if count == 0 || isOfLibrary { return }
        }
    }

    private func write(_ bytes: RawSpan) -> Int {
        let count = bytes.withAddress { start, count in
            // A stream that connects, or that has no room, reports when it can be written.
            guard stream.hasSpaceAvailable else { return 0 }
            return unsafe stream.write(start!.assumingMemoryBound(to: UInt8.self), maxLength: count)
        }
        if count <= 0 { noteFailure() }
        return max(count, 0)
    }

    private func noteFailure() {
        guard failure == nil else { return }
        switch stream.streamStatus {
        case .error:
            let error = stream.streamError
            failure = .write(error as? IOError ?? IOError(.write, path, .ioError))
        case .atEnd, .closed: failure = .write(IOError(.write, path, stream.endError.reason))
        default: break
        }
        // The reader of a pair has closed its stream.
        if buffer != nil, failure != nil { failure = .cancelled }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .errorOccurred, .endEncountered:
            noteFailure()
            if ending != .none { writeOut() } else { failure.map { owner?.sinkHasFailed($0) } }
        default:
            let waited = !hasRoom
            writeOut()
            if waited, hasRoom { owner?.streamIsReady() }
        }
    }

    // MARK: The end

    func finish() -> SinkEnd {
        ending = .finishing
        if ended == nil { ended = { [weak self] in self?.owner?.sinkHasFinished($0) } }
        owner?.noteActivity()
        return .later
    }

    func drain() -> Bool {
        guard written < rest.count, failure == nil else { return false }
        _ = finish()
        ending = .draining
        return true
    }

    func abandon(_ error: HTTPError) {
        buffer?.fail(error)
        abandon()
    }

    func abandon() {
        ending = .none
        // What a file has is kept for the next attempt.
        if batchSize > 0 { writeRest() }
        close()
    }

    private func close() {
        stream.delegate = nil
        stream.close()
        if stream.streamStatus == .error { noteFailure() }
    }
}
