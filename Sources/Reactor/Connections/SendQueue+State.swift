import SystemPackage

extension SendQueue {
    struct Message: Sendable {
        /// A key of any type.
        struct Key: Hashable, Sendable {
            let value: any Hashable & Sendable

            // An AnyHashable of 1 is the same for all types of integers, and has one hash.
            static func == (left: Key, right: Key) -> Bool {
                AnyHashable(left.value) == AnyHashable(right.value)
            }

            func hash(into hasher: inout Hasher) { AnyHashable(value).hash(into: &hasher) }
        }

        var bytes: [UInt8]
        let key: Key?

        /// What it takes of the limit. Array, key and place of an empty message have some 64 bytes, too.
        var cost: Int { max(bytes.count, SendQueue.leastCost) }
    }

    /// A task that waits for room for its message.
    struct Writer {
        let message: Message
        let wait: TaskWait
    }

    /// What became of a message.
    enum Put {
        /// It is the only one: the caller sends it.
        case sends
        case waits
        case hasNoRoom
        /// The output is being ended.
        case comesTooLate
    }

    /// The messages, and which thread sends them. Pure.
    struct State {
        enum Phase {
            case idle
            /// One thread sends, or waits for the connection's turn.
            case sending
            /// One thread has asked for room, which may come before it returns.
            case asking, found
            /// The stream reports room.
            case waiting
        }

        let limit: Int
        var phase = Phase.idle
        var hasTurn = false
        /// Those that wait.
        private var messages = Queue<Message>()
        /// The number of the first of them. Flushes are due between two batches.
        private var firstNumber: Int { flushes.takenCount }
        /// What is being sent: one message or several, and how many bytes of them the stream has accepted.
        private var batch: [UInt8] = []
        private var position = 0
        private var batchCount = 0
        /// What the batch's messages take of the limit.
        private var batchCost = 0
        /// The numbers of messages with keys.
        private var numbers: [Message.Key: Int] = [:]
        /// What the messages take of the limit, with those that are being sent.
        private(set) var cost = 0
        private(set) var droppedCount = 0
        private(set) var replacedCount = 0
        private(set) var failure: (any Error)?
        /// How many tasks wait for the end of the output, or whether it has ended: then no more messages are accepted.
        var enderCount = 0
        private var writers = Queue<Writer>()
        private var flushes = FlushCallbacks()
        private var writeCount: UInt8 = 0
        private var isPending = false

        init(limit: Int) { self.limit = limit }
    }
}

extension SendQueue.State {
    /// Small messages are sent together, up to so many bytes: a system call costs more than copying them.
    private static let batchSize = 16_384

    // MARK: Messages

    mutating func put(_ message: SendQueue.Message) -> SendQueue.Put {
        if failure != nil { return .waits }
        if enderCount > 0 { return .comesTooLate }
        guard cost + growth(by: message) <= limit else { return .hasNoRoom }
        if let key = message.key, let number = numbers[key] {
            cost += growth(by: message)
            messages[number - firstNumber] = message
            replacedCount += 1
            admit()
            return .waits
        }
        return writers.isEmpty ? append(message) : .hasNoRoom
    }

    /// How much more a message takes of the limit than the one that it replaces.
    private func growth(by message: SendQueue.Message) -> Int {
        guard let key = message.key, let number = numbers[key] else { return message.cost }
        return message.cost - messages[number - firstNumber].cost
    }

    /// Whether a task that writes lets its loop pass: after some writes without a wait.
    mutating func isTurnOver() -> Bool {
        writeCount &+= 1
        return writeCount % 8 == 0
    }

    private mutating func append(_ message: SendQueue.Message) -> SendQueue.Put {
        cost += message.cost
        if let key = message.key { numbers[key] = firstNumber + messages.count }
        messages.append(message)
        guard phase == .idle else { return .waits }
        phase = .sending
        return .sends
    }

    /// Puts a message in the place of the oldest ones; drops it if it does not fit beside what is being sent.
    mutating func putForOldest(_ message: SendQueue.Message) -> SendQueue.Put {
        guard batchCost + message.cost <= limit else {
            droppedCount += 1
            return .waits
        }
        while cost + growth(by: message) > limit, let oldest = takeFirst() {
            cost -= oldest.cost
            if let key = oldest.key, key == message.key { replacedCount += 1 } else { droppedCount += 1 }
        }
        var put = put(message)
        if put == .hasNoRoom { put = append(message) }
        // A long message may have left more room than this one needs.
        admit()
        return put
    }

    private mutating func takeFirst() -> SendQueue.Message? {
        guard let message = messages.popFirst() else { return nil }
        if let key = message.key { numbers[key] = nil }
        flushes.take(1)
        return message
    }

    // MARK: Sending

    /// What to send next, and whether the turn has been taken; nil if nothing waits.
    mutating func next() -> (bytes: [UInt8], position: Int, hasTurn: Bool)? {
        if batchCount == 0, !takeBatch() {
            phase = .idle
            endPending()
            return nil
        }
        return (batch, position, hasTurn)
    }

    private mutating func takeBatch() -> Bool {
        guard let first = takeFirst() else { return false }
        (batch, position, batchCount, batchCost) = (first.bytes, 0, 1, first.cost)
        while let next = messages.front, batch.count + next.bytes.count <= Self.batchSize {
            batch += next.bytes
            batchCount += 1
            batchCost += next.cost
            _ = takeFirst()
        }
        return true
    }

    /// Records that so many bytes have been accepted, and gives their room to the tasks that wait for it. Returns whether the
    /// caller has to pass the turn on, and the flushes whose messages have been sent.
    mutating func advance(by count: Int) -> (passesTurn: Bool, flushes: [FlushCallback]) {
        position += count
        guard position == batch.count else { return (false, []) }
        cost -= batchCost
        (batch, position, batchCount, batchCost) = ([], 0, 0, 0)
        defer { hasTurn = false }
        admit()
        return (hasTurn, flushes.removeDue(all: false))
    }

    /// An exit of the process waits for what is not sent at once.
    mutating func beginPending() {
        if !isPending { PendingOutput.begin() }
        isPending = true
    }

    private mutating func endPending() {
        if isPending { PendingOutput.end() }
        isPending = false
    }

    mutating func beginWait() {
        beginPending()
        phase = .asking
    }

    /// There may be room. Returns whether the caller has to send.
    mutating func endWait() -> Bool {
        defer { phase = phase == .asking ? .found : .sending }
        return phase == .waiting
    }

    /// Whether room has come already; otherwise it is reported.
    mutating func isRoomFound() -> Bool {
        let isFound = phase == .found
        phase = isFound ? .sending : .waiting
        return isFound
    }

    /// Drops what waits. Returns whether the caller has to pass the turn on, and the tasks that wait.
    mutating func fail(_ error: any Error) -> (
        hadTurn: Bool, writers: Queue<SendQueue.Writer>, [FlushCallback]
    ) {
        droppedCount += batchCount + messages.count
        failure = failure ?? error
        (messages, numbers) = (Queue(), [:])
        (batch, batchCount, cost) = ([], 0, 0)
        endPending()
        defer { (writers, phase, hasTurn) = (Queue(), .idle, false) }
        return (hasTurn, writers, flushes.removeDue(all: true))
    }

    // MARK: Tasks

    /// As ``put(_:)``, or records the writer if there is no room.
    mutating func putLater(_ writer: SendQueue.Writer) -> SendQueue.Put {
        let put = put(writer.message)
        if put == .hasNoRoom { writers.append(writer) }
        return put
    }

    /// Appends the messages for which there is room by now, in order. While a task waits for room, another sends: this never
    /// has to.
    mutating func admit() {
        while let writer = writers.front, writer.wait.hasEnded || cost + writer.message.cost <= limit {
            _ = writers.popFirst()
            // A task that has given up sends nothing.
            guard writer.wait.end() else { continue }
            let put = append(writer.message)
            assert(put == .waits)
        }
    }

    /// Forgets the tasks that have given up.
    mutating func removeEnded() {
        writers.removeAll { $0.wait.hasEnded }
        flushes.removeEnded()
    }

    /// Whether the stream has accepted all messages.
    var isEmpty: Bool { batchCount == 0 && messages.isEmpty && writers.isEmpty }

    /// Returns whether all messages have been sent.
    mutating func flushLater(_ callback: FlushCallback) -> Bool {
        if batchCount == 0, messages.isEmpty { return true }
        flushes.add(callback, at: firstNumber + messages.count)
        return false
    }
}
