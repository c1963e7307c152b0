import Reactor

/// One client: cuts what it sends into lines, and sends it what others say.
///
/// Nothing here ever waits: the stream is written once each time it says that it has room. What it does not take stays
/// in an outbox. While an outbox holds more than ``mostPendingBytes``, the room reads no guest (see ``Room``), so it grows
/// beyond that by the answers to one read at most. A guest that takes nothing while the room's patience lasts is sent
/// away; one that reads, however slowly, is not.
final class Guest: StreamDelegate {
    /// Of a longer line the rest is dropped.
    static let longestLine = 1000
    /// Several hundred of the longest lines: a guest that is away for a moment does not hold up the others.
    static let mostPendingBytes = 262_144
    /// How much of the outbox one write offers.
    private static let pieceSize = 16_384

    var name: String

    private let input: InputStream
    private let output: OutputStream
    private unowned let room: Room
    private var framer = LineFramer(limit: longestLine, overflow: .truncate)
    private var outbox = Outbox()
    /// Runs while the outbox holds something, and begins anew whenever the guest takes some of it.
    private var patience: Timer?
    private var hasSpace = false
    /// Whether there are bytes that are not to be read before the other guests have caught up.
    private var isHeldUp = false
    private var isLeaving = false
    private var isOver = false

    /// Whether more waits to be sent than should.
    var isBehind: Bool { outbox.count > Self.mostPendingBytes }

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
        // The stream delivers no further event before it has been read.
        isHeldUp = room.isCongested
        guard !isHeldUp else { return }
        let bytes = input.read(upTo: 4096)
        // Nothing is thrown: long lines are cut, and what is no text is repaired.
        _ = try? unsafe framer.push(bytes.span.bytes) { line, place in
            room.take(Command(try place.text(line)), from: self)
            return isLeaving || isOver ? .enough : .more
        }
    }

    /// Reads what had to wait while the room was congested.
    func goOn() {
        if isHeldUp, !isLeaving, !isOver { read() }
    }

    // MARK: What goes out

    func send(_ line: String) {
        guard !isLeaving, !isOver else { return }
        outbox.append(line)
        flush()
    }

    /// Writes when the stream has told of room, once: it tells again after that.
    private func flush() {
        let wasBehind = isBehind
        if hasSpace, !outbox.isEmpty {
            hasSpace = false
            let count = unsafe outbox.send(atMost: Self.pieceSize) { bytes in
                unsafe output.write(bytes.baseAddress!, maxLength: bytes.count)
            }
            if count > 0 { stopWaiting() }
        }
        if outbox.isEmpty, isLeaving { return end() }
        if !outbox.isEmpty, patience == nil { startWaiting() }
        if wasBehind, !isBehind { room.goOn() }
    }

    private func startWaiting() {
        patience = Timer.scheduled(after: room.patience, forMode: .common) { [weak self] _ in
            self?.end(because: ", for not listening")
        }
    }

    private func stopWaiting() { patience.take()?.invalidate() }

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
        stopWaiting()
        input.close()
        output.close()
        room.forget(self, because: reason)
    }
}
