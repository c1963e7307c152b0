import Glibc
import Reactor
import SystemPackage

/// Passes on the bytes of one direction of a ``TestConnection``, or of a connection of a ``World``. Confined to the thread of
/// its loop, which retains it until the direction has ended, unless it is stalled.
final class Relay {
    private let from: SocketPair
    private let to: SocketPair
    weak var opposite: Relay?
    private let domain = currentTimeSource as? TimeDomain
    private var generator: SeededGenerator

    /// Chosen at random for what is read at once.
    var latency: ClosedRange<Duration> = .zero ... .zero
    var chunkSizes: ClosedRange<Int>?
    var isStalled = false {
        didSet { isStalled ? pause() : proceed() }
    }

    /// Called before bytes arrive, and with zero before the end does. It may end the relay.
    var willDeliver: ((Int) -> Void)?

    /// Whether ``willDeliver`` was called for the first piece, for which the receiver had no room.
    private var hasAnnouncedPiece = false

    private var pieces: [Piece] = []
    private var byteCount = 0
    /// How many bytes arrive before the sender is closed; nil for all.
    private var bytesLeft: Int?
    private(set) var hasEnded = false
    /// Whether the end of what the sender has written is a reset.
    var endsWithReset = false
    private var reader: DescriptorSource?
    private var writer: DescriptorSource?
    private var timer: Timer?

    /// Between two pieces the receiver reads. In virtual time a nanosecond is enough: the clock moves when the receiver waits.
    private var pieceInterval: Duration { domain == nil ? .milliseconds(1) : .nanoseconds(1) }

    /// How many bytes a relay keeps: a latency does not limit the throughput, and a sender that does not wait is stopped.
    private static let capacity = 262_144

    /// Bytes that have been read, none for the end, and when they arrive.
    private struct Piece {
        let date: Deadline
        var bytes: [UInt8]
    }

    private init(from: SocketPair, to: SocketPair, _ generator: SeededGenerator) {
        (self.from, self.to, self.generator) = (from, to, generator)
    }

    /// The relays between two pairs: from the first and to it.
    static func both(
        _ first: SocketPair, _ second: SocketPair, _ makeGenerator: (UInt64) -> SeededGenerator
    ) -> [Relay] {
        let there = Relay(from: first, to: second, makeGenerator(0))
        let back = Relay(from: second, to: first, makeGenerator(1))
        (there.opposite, back.opposite) = (back, there)
        return [there, back]
    }

    func begin() throws(Errno) {
        domain?.addOwn([from.testedEnd, from.relayEnd])
        try watch()
    }

    func closes(after count: Int) {
        bytesLeft = count
        if count == 0 { cut() }
    }

    func reset() {
        for pair in [from, to] { pair.reset() }
        end()
        opposite?.end()
    }

    /// Ends the sender as if its process had ended: the receiver reads the end, and writes of both fail.
    func cut() {
        end()
        opposite?.end()
    }

    private func end() {
        guard !hasEnded else { return }
        hasEnded = true
        domain?.removeOwn([from.testedEnd, from.relayEnd])
        pause()
        pieces = []
        writer?.cancel()
        writer = nil
        if opposite?.hasEnded ?? true {
            for pair in [from, to] { pair.close() }
        }
    }

    private func pause() {
        reader?.cancel()
        reader = nil
        timer?.invalidate()
        timer = nil
    }

    private func proceed() {
        deliver()
        // Afterwards: what has been delivered makes room.
        guard !hasEnded, !isStalled else { return }
        do throws(Errno) { try watch() } catch { reset() }
    }

    // MARK: Reading

    private func watch() throws(Errno) {
        guard reader == nil, byteCount < Self.capacity, pieces.last?.bytes.isEmpty != true else { return }
        let source = DescriptorSource(FileDescriptor(rawValue: from.relayEnd), for: .readable) {
            [self] _, _ in
            read()
        }
        try RunLoop.current.register(source, forMode: .common)
        reader = source
    }

    private func read() {
        var bytes: [UInt8] = []
        do throws(Errno) {
            let most = from.readableCount(upTo: 65_536)
            let count =
                most == 0
                ? 0
                : try bytes.append(upTo: most) { [from] (room) throws(Errno) in
                    try SystemCall.receive(from: from.relayEnd, into: &room) ?? -1
                }
            guard count >= 0 else { return }
        } catch { return reset() }
        byteCount += bytes.count
        let date = Deadline.now + latency.random(&generator)
        pieces.append(Piece(date: max(date, pieces.last?.date ?? date), bytes: bytes))
        if bytes.isEmpty || byteCount >= Self.capacity {
            reader?.cancel()
            reader = nil
        }
        deliver()
    }

    // MARK: Delivering

    /// Passes on what is due: all of it, or one piece, and the next one in the next pass.
    private func deliver() {
        while !hasEnded, !isStalled, writer == nil, timer == nil, let first = pieces.first {
            guard first.date <= .now else { return deliver(at: first.date) }
            guard !first.bytes.isEmpty else { return finish() }
            guard send(first.bytes) else { return }
            if chunkSizes != nil { return deliver(at: .now + pieceInterval) }
        }
    }

    private func deliver(at date: Deadline) {
        timer = Timer.scheduled(after: Deadline.now.duration(to: date), forMode: .common) { [self] _ in
            timer = nil
            proceed()
        }
    }

    /// Sends the first piece, or as much of it as may arrive now. Returns whether the receiver had room.
    private func send(_ bytes: [UInt8]) -> Bool {
        let most = min(
            chunkSizes.map { Int.random(in: $0, using: &generator) } ?? .max, bytesLeft ?? .max, bytes.count)
        if !hasAnnouncedPiece { willDeliver?(most) }
        guard !hasEnded else { return false }
        var count = 0
        do throws(Errno) {
            count = try bytes.withBytes { [to] (bytes) throws(Errno) in
                try SystemCall.send(bytes.extracting(first: most), to: to.relayEnd)
            }
        } catch {
            // The receiver has closed its end. What it has sent arrives, with its end.
            end()
            return false
        }
        hasAnnouncedPiece = count == 0
        guard count > 0 else {
            waitForRoom()
            return false
        }
        byteCount -= count
        if count == bytes.count { pieces.removeFirst() } else { pieces[0].bytes.removeFirst(count) }
        if let left = bytesLeft {
            bytesLeft = left - count
            if left == count { cut() }
        }
        return true
    }

    private func waitForRoom() {
        let source = DescriptorSource(FileDescriptor(rawValue: to.relayEnd), for: .writable) {
            [self] source, _ in
            source.cancel()
            writer = nil
            proceed()
        }
        do throws(Errno) { try RunLoop.current.register(source, forMode: .common) } catch { return reset() }
        writer = source
    }

    /// The sender has ended its output, and everything has arrived.
    private func finish() {
        willDeliver?(0)
        guard !hasEnded else { return }
        if endsWithReset { return reset() }
        _ = shutdown(to.relayEnd, CInt(SHUT_WR))
        end()
    }
}
