import Reactor

/// A connected client. Splits its input into lines, and sends it the lines of the others.
///
/// Nothing blocks: each space event allows one write, and the rest waits in a write buffer. While any guest's buffer
/// is above ``highWaterMark``, the room reads from no guest (see ``Room``), so a buffer exceeds the mark by at most the
/// replies to one read. A guest that accepts no bytes for the room's write timeout is disconnected; a slow one is not.
final class Guest: StreamDelegate {
    /// The rest of a longer line is discarded.
    static let longestLine = 1000
    /// Several hundred of the longest lines: a short delay of one guest does not stop the others.
    static let highWaterMark = 262_144
    /// The most bytes that one write passes to the stream.
    private static let chunkSize = 16_384

    var name: String

    private let input: InputStream
    private let output: OutputStream
    private unowned let room: Room
    private var framer = LineFramer(limit: longestLine, overflow: .truncate)
    private var buffer = WriteBuffer()
    /// Scheduled while the buffer is not empty. Restarted when the guest accepts bytes.
    private var writeTimer: Timer?
    private var hasSpace = false
    /// Whether bytes are available that wait until the room is no longer congested.
    private var isReadDeferred = false
    private var isClosing = false
    private var isClosed = false

    var isAboveHighWaterMark: Bool { buffer.count > Self.highWaterMark }

    init(_ connection: Connection, name: String, in room: Room) {
        (input, output) = (connection.streams.input, connection.streams.output)
        self.name = name
        self.room = room
    }

    func start() {
        for stream in [input, output] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .common)
            stream.open()
        }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: read()
        case .hasSpaceAvailable:
            hasSpace = true
            flush()
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    // MARK: Reading

    private func read() {
        // The stream delivers no further event until it is read.
        isReadDeferred = room.isCongested
        guard !isReadDeferred else { return }
        let bytes = input.read(upTo: 4096)
        // Cannot throw: the framer truncates long lines, and invalid UTF-8 is repaired.
        _ = try? unsafe framer.push(bytes.span.bytes) { bytes, line in
            room.perform(Command(try line.text(bytes)), for: self)
            return isClosing || isClosed ? .enough : .more
        }
    }

    /// Reads the bytes that were deferred while the room was congested.
    func resumeReading() {
        if isReadDeferred, !isClosing, !isClosed { read() }
    }

    // MARK: Writing

    func send(_ line: String) {
        guard !isClosing, !isClosed else { return }
        buffer.append(line)
        flush()
    }

    /// Writes once for each space event.
    private func flush() {
        let wasAboveHighWaterMark = isAboveHighWaterMark
        if hasSpace, !buffer.isEmpty {
            hasSpace = false
            if buffer.write(to: output, limit: Self.chunkSize) > 0 { stopWriteTimer() }
        }
        if buffer.isEmpty, isClosing { return close() }
        if !buffer.isEmpty, writeTimer == nil { startWriteTimer() }
        if wasAboveHighWaterMark, !isAboveHighWaterMark { room.resumeReading() }
    }

    private func startWriteTimer() {
        writeTimer = Timer.scheduled(after: room.writeTimeout, forMode: .common) { [weak self] _ in
            self?.close(reason: "write timeout")
        }
    }

    private func stopWriteTimer() { writeTimer.take()?.invalidate() }

    // MARK: Closing

    /// Stops reading, and closes the connection after the buffer has been sent.
    func closeAfterFlush() {
        isClosing = true
        input.close()
        flush()
    }

    /// Closes the connection and discards the buffer.
    func close(reason: String? = nil) {
        guard !isClosed else { return }
        isClosed = true
        stopWriteTimer()
        input.close()
        output.close()
        room.remove(self, reason: reason)
    }
}
