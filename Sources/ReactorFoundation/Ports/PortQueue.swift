import Reactor

/// The limits of what a local port keeps.
struct PortLimits {
    /// Total bytes of queued and arriving messages, excluding one long message.
    ///
    /// A megabyte is some thousand small messages, and more than a local connection keeps in the kernel.
    var byteCount = 1 << 20
    /// The accepted connections: together their streams and buffers take less than a megabyte, and a quarter of the
    /// usual limit of descriptors.
    var connectionCount = 256
    /// The time in which a message, or the next megabyte of a long one, must arrive: 35 KB/s for a long one.
    var messageTimeout = Duration.seconds(30)
}

/// A message and the address that it came from.
struct ReceivedMessage {
    /// The encoded frame, which takes less memory than the decoded one.
    fileprivate let bytes: [UInt8]
    let peer: SocketAddress

    /// Checks that `bytes` are a valid frame.
    init(_ bytes: [UInt8], from peer: SocketAddress) throws(PortFrame.ParseError) {
        _ = try PortFrame(bytes)
        (self.bytes, self.peer) = (bytes, peer)
    }

    var frame: PortFrame {
        guard let frame = try? PortFrame(bytes) else { fatalError("A queued port message is not valid.") }
        return frame
    }
}

/// The memory that a port's messages may take. Pure: the queue waits for it.
struct PortRoom {
    /// A long message is one that is longer than the limit of all others. There is one at a time, and it does not use
    /// up the others' room, so that a peer that stops within it does not delay them.
    enum Kind: CaseIterable { case short, long }

    private let limit: Int
    private var used = 0
    private var hasLong = false

    init(limit: Int) { self.limit = limit }

    func kind(of byteCount: Int) -> Kind { byteCount > limit ? .long : .short }

    func fits(_ byteCount: Int) -> Bool {
        kind(of: byteCount) == .long ? !hasLong : used + byteCount <= limit
    }

    var isHalfFree: Bool { used <= limit / 2 }

    mutating func take(_ byteCount: Int) {
        if kind(of: byteCount) == .long { hasLong = true } else { used += byteCount }
    }

    mutating func release(_ byteCount: Int) {
        if kind(of: byteCount) == .long { hasLong = false } else { used -= byteCount }
    }
}

/// The messages that have arrived at a local port and wait for a run loop to deliver them. Counts their memory and that
/// of the messages that are arriving.
final class PortQueue: Sendable {
    private struct State {
        var messages = Queue<ReceivedMessage>()
        /// The room that these messages and those that are arriving leave.
        var room: PortRoom
        /// The bytes that the first waiting connection of each kind needs.
        var awaited: [PortRoom.Kind: Int] = [:]
        var isOpen = true
        var messageHandler: (@Sendable () -> Void)?

        mutating func take() -> ReceivedMessage? {
            guard let message = messages.popFirst() else { return nil }
            room.release(PortQueue.byteCount(frameLength: message.bytes.count))
            return message
        }

        /// Whether a waiting connection has room. True only when half of the room is free or nothing is queued, so that
        /// the connections' thread is not woken for every message; and only once.
        mutating func hasRoomAgain() -> Bool {
            guard messages.isEmpty || room.isHalfFree, awaited.values.contains(where: room.fits) else {
                return false
            }
            awaited = [:]
            return true
        }
    }

    private let state: Mutex<State>

    init(byteLimit: Int) { state = Mutex(State(room: PortRoom(limit: byteLimit))) }

    /// The memory of a message of this length: its bytes, their array's header and the entries in the queue.
    static func byteCount(frameLength: Int) -> Int { frameLength + 256 }

    func kind(of byteCount: Int) -> PortRoom.Kind { state.withLock { $0.room.kind(of: byteCount) } }

    /// Sets a handler that is called, on any thread, when a message has arrived.
    func setMessageHandler(_ handler: @escaping @Sendable () -> Void) {
        state.withLock { $0.messageHandler = handler }
        if !isEmpty { handler() }
    }

    var isEmpty: Bool { state.withLock { $0.messages.isEmpty } }

    /// Reserves bytes for a message that is arriving. If there are too few, returns false, and a later call of
    /// `take()` reports that there are enough.
    func reserve(_ byteCount: Int) -> Bool {
        state.withLock { state in
            guard state.isOpen else { return false }
            let fits = state.room.fits(byteCount)
            if fits {
                state.room.take(byteCount)
            } else {
                state.awaited[state.room.kind(of: byteCount)] = byteCount
            }
            return fits
        }
    }

    /// Releases bytes that were reserved for a message that will not arrive.
    func release(_ byteCount: Int) {
        state.withLock { $0.room.release(byteCount) }
    }

    /// Adds a message, whose bytes have been reserved.
    func append(_ message: ReceivedMessage) {
        let handler = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.isOpen else { return nil }
            state.messages.append(message)
            return state.messageHandler
        }
        handler?()
    }

    /// Removes and returns the first message, and whether a waiting connection has room because of that.
    func take() -> (message: ReceivedMessage?, hasRoomAgain: Bool) {
        state.withLock { ($0.take(), $0.hasRoomAgain()) }
    }

    /// Discards the queued messages and all later ones. Returns false if the queue was already closed.
    func close() -> Bool {
        state.withLock { state in
            defer { state = State(room: state.room, isOpen: false) }
            return state.isOpen
        }
    }
}
