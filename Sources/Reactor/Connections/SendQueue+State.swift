import SystemPackage

extension SendQueue {
    struct Message: Sendable {
        /// A key of any type.
        struct Key: Hashable, Sendable {
            let value: any Hashable & Sendable

            static func == (left: Key, right: Key) -> Bool {
                AnyHashable(left.value) == AnyHashable(right.value)
            }

            func hash(into hasher: inout Hasher) { value.hash(into: &hasher) }
        }

        var bytes: [UInt8]
        let key: Key?
    }

    /// A task that waits for room.
    struct Writer {
        let id: Int
        let bytes: [UInt8]
        let continuation: CheckedContinuation<Errno?, Never>
    }

    /// A task that waits until so many messages have been written or dropped.
    struct Flush {
        let id: Int
        let count: Int
        let continuation: CheckedContinuation<Errno?, Never>
        var isWritten = false
    }

    /// What became of a message.
    enum Put {
        /// It is the only one: the caller writes it.
        case sends
        case waits
        case replaces
        case hasNoRoom
    }

    /// The messages, and who writes them. Pure.
    struct State {
        enum Phase {
            case idle
            /// One thread writes, or waits for the connection's turn.
            case sending
            /// One thread has asked for room, which may have come before the answer.
            case asking, found
            /// The stream reports room.
            case waiting
        }

        let limit: Int
        var phase = Phase.idle
        var hasTurn = false
        /// Those that wait. The first one has the number ``takenCount``.
        private var messages = Queue<Message>()
        /// How many have left the queue.
        private var takenCount = 0
        /// What is being written: one message or several, and how many bytes of them have been accepted.
        private var current: [UInt8] = []
        private var position = 0
        private var currentCount = 0
        /// The numbers of messages with keys.
        private var numbers: [Message.Key: Int] = [:]
        /// The bytes that wait, with those that are being written.
        private(set) var byteCount = 0
        private(set) var droppedCount = 0
        private(set) var replacedCount = 0
        private(set) var failure: (any Error)?
        /// How often there was no room in a stream that had nothing left to send.
        private var refusals = 0
        private var writers: [Writer] = []
        private var flushes: [Flush] = []
        private var lastID = 0
        private var isPending = false

        init(limit: Int) { self.limit = limit }
    }
}

extension SendQueue.State {
    /// Small messages are written together, up to so many bytes: a system call costs more than copying them.
    private static let batchSize = 16_384

    // MARK: Messages

    mutating func put(_ message: SendQueue.Message) -> SendQueue.Put {
        if let key = message.key, let number = numbers[key] {
            let growth = message.bytes.count - messages[number - takenCount].bytes.count
            guard byteCount + growth <= limit else { return .hasNoRoom }
            messages[number - takenCount] = message
            byteCount += growth
            replacedCount += 1
            return .replaces
        }
        guard byteCount + message.bytes.count <= limit, writers.isEmpty else { return .hasNoRoom }
        return append(message)
    }

    private mutating func append(_ message: SendQueue.Message) -> SendQueue.Put {
        byteCount += message.bytes.count
        guard phase == .idle else {
            if let key = message.key { numbers[key] = takenCount + messages.count }
            messages.append(message)
            return .waits
        }
        phase = .sending
        takenCount += 1
        (current, position, currentCount) = (message.bytes, 0, 1)
        return .sends
    }

    /// Puts a message in the place of the oldest ones.
    mutating func putForOldest(_ message: SendQueue.Message) -> SendQueue.Put {
        while byteCount + message.bytes.count > limit, let oldest = takeFirst() {
            byteCount -= oldest.bytes.count
            droppedCount += 1
        }
        if let key = message.key, let number = numbers[key], number >= takenCount { return put(message) }
        if byteCount + message.bytes.count <= limit { return append(message) }
        droppedCount += 1
        return .waits
    }

    private mutating func takeFirst() -> SendQueue.Message? {
        guard let message = messages.popFirst() else { return nil }
        if let key = message.key { numbers[key] = nil }
        takenCount += 1
        return message
    }

    // MARK: Writing

    /// What to write next, and whether the turn has been taken; nil if nothing waits.
    mutating func next() -> (bytes: [UInt8], position: Int, hasTurn: Bool)? {
        if currentCount == 0, !takeBatch() {
            phase = .idle
            if isPending { PendingOutput.end() }
            isPending = false
            return nil
        }
        return (current, position, hasTurn)
    }

    private mutating func takeBatch() -> Bool {
        guard let first = takeFirst() else { return false }
        (current, position, currentCount) = (first.bytes, 0, 1)
        while let next = messages.front, current.count + next.bytes.count <= Self.batchSize {
            current += next.bytes
            currentCount += 1
            _ = takeFirst()
        }
        return true
    }

    /// Records that so many bytes have been accepted. Returns whether the caller has to pass the turn on.
    mutating func advance(by count: Int) -> Bool {
        position += count
        byteCount -= count
        if count > 0 { refusals = 0 }
        guard position == current.count else { return false }
        (current, position, currentCount) = ([], 0, 0)
        defer { hasTurn = false }
        return hasTurn
    }

    /// Returns whether the stream has had no room twice, though it had nothing to send.
    mutating func beginWait() -> Bool {
        if !isPending { PendingOutput.begin() }
        isPending = true
        refusals += 1
        guard refusals < 3 else { return true }
        phase = .asking
        return false
    }

    /// There is room. Returns whether the caller has to write.
    mutating func endWait() -> Bool {
        defer { phase = phase == .asking ? .found : .sending }
        return phase == .waiting
    }

    /// Whether room has come already; otherwise it is reported.
    mutating func isRoomFound() -> Bool {
        let isFound = phase == .found
        if isFound { phase = .sending }
        if phase == .asking {
            phase = .waiting
            refusals = 0
        }
        return isFound
    }

    /// Drops what waits. Returns whether the caller has to pass the turn on, and the tasks that wait.
    mutating func fail(_ error: any Error) -> (hadTurn: Bool, waiters: [CheckedContinuation<Errno?, Never>]) {
        droppedCount += currentCount + messages.count
        failure = error
        (messages, numbers) = (Queue(), [:])
        (current, currentCount, byteCount) = ([], 0, 0)
        let waiters = writers.map(\.continuation) + flushes.map(\.continuation)
        (writers, flushes, phase) = ([], [], .idle)
        if isPending { PendingOutput.end() }
        isPending = false
        defer { hasTurn = false }
        return (hasTurn, waiters)
    }

    // MARK: Tasks

    mutating func newID() -> Int {
        lastID += 1
        return lastID
    }

    var hasWaiters: Bool { !writers.isEmpty || !flushes.isEmpty }

    /// As ``put(_:)``, or records the writer if there is still no room.
    mutating func putLater(_ writer: SendQueue.Writer) -> SendQueue.Put {
        if failure != nil { return .waits }
        let put = put(SendQueue.Message(bytes: writer.bytes, key: nil))
        if put == .hasNoRoom { writers.append(writer) }
        return put
    }

    /// Puts the messages for which there is room by now.
    mutating func admit() -> [SendQueue.Writer] {
        var sum = byteCount
        let count = writers.prefix {
            sum += $0.bytes.count
            return sum <= limit
        }.count
        defer { writers.removeFirst(count) }
        for writer in writers.prefix(count) { _ = append(SendQueue.Message(bytes: writer.bytes, key: nil)) }
        return Array(writers.prefix(count))
    }

    /// Returns whether all messages have been written.
    mutating func flushLater(_ id: Int, _ continuation: CheckedContinuation<Errno?, Never>) -> Bool {
        let count = takenCount + messages.count
        let isWritten = messages.isEmpty && currentCount == 0
        flushes.append(.init(id: id, count: count, continuation: continuation, isWritten: isWritten))
        return isWritten
    }

    /// The flushes whose messages have been written by now.
    mutating func takeFlushed() -> [Int] {
        let written = currentCount == 0 ? takenCount : takenCount - currentCount
        var ids: [Int] = []
        for index in flushes.indices where !flushes[index].isWritten && flushes[index].count <= written {
            flushes[index].isWritten = true
            ids.append(flushes[index].id)
        }
        return ids
    }

    mutating func removeWaiter(_ id: Int) -> CheckedContinuation<Errno?, Never>? {
        if let index = writers.firstIndex(where: { $0.id == id }) {
            return writers.remove(at: index).continuation
        }
        return flushes.firstIndex { $0.id == id }.map { flushes.remove(at: $0).continuation }
    }
}
