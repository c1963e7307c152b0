import Reactor

/// One client: cuts what it sends into lines, and sends it what others say.
///
/// The streams tell when something can be done, and nothing here ever waits. A guest who does not read is
/// sent away with ``mostPendingBytes`` of lines unsent: that is all the memory that it can cost, beside what
/// the stream and the kernel keep.
final class Guest: StreamDelegate {
    /// Of a longer line the rest is dropped.
    static let longestLine = 1000
    static let mostPendingBytes = 65_536
    /// Less than the room that there is for sure when the stream tells of some, so that no write waits.
    private static let pieceSize = 16_384

    var name: String

    private let input: InputStream
    private let output: OutputStream
    private unowned let room: Room
    private var framer = LineFramer(limit: longestLine, overflow: .truncate)
    private var pending: [UInt8] = []
    private var hasSpace = false
    private var isLeaving = false
    private var isOver = false

    init(_ connection: Listener.Connection, name: String, in room: Room) {
        (input, output) = (connection.input, connection.output)
        self.name = name
        self.room = room
    }

    func begin() {
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
        case .endEncountered, .errorOccurred: end()
        default: break
        }
    }

    // MARK: What comes in

    private func read() {
        let bytes = input.read(upTo: 4096)
        // Nothing is thrown: long lines are cut, and what is no text is repaired.
        _ = try? unsafe framer.push(bytes.span.bytes) { line, place in
            room.take(Command(try place.text(line)), from: self)
            return isLeaving || isOver ? .enough : .more
        }
    }

    // MARK: What goes out

    func send(_ line: String) {
        guard !isLeaving, !isOver else { return }
        pending += Array("\(line)\n".utf8)
        guard pending.count <= Self.mostPendingBytes else { return end(because: ", for not listening") }
        flush()
    }

    /// Writes when the stream has told of room, once: it tells again after that.
    private func flush() {
        if isLeaving, pending.isEmpty { return end() }
        guard hasSpace, !pending.isEmpty else { return }
        hasSpace = false
        let piece = Array(pending.prefix(Self.pieceSize))
        pending.removeFirst(piece.count)
        output.write(piece)
    }

    // MARK: The end

    /// Goes when all that was said has been sent.
    func leave() {
        isLeaving = true
        input.close()
        flush()
    }

    /// Goes at once.
    func end(because reason: String = "") {
        guard !isOver else { return }
        isOver = true
        input.close()
        output.close()
        room.forget(self, because: reason)
    }
}
