/// A cap on the memory that many hand-offs have in chunks together.
///
/// Give one to the ``HandoffLimits`` of all of them: then a thousand connections that all send at once take no
/// more than `limit` bytes, and those that are idle none. A hand-off that finds no room is not read until it
/// gets some. Hand-offs wait in line, a chunk at a time: first come, first served, and nobody overtakes.
///
/// ```swift
/// let budget = ByteBudget(limit: 4 << 20)
/// let limits = HandoffLimits(chunkSize: 16_384, bytesInFlight: 32_768, budget: budget)
/// let handoff = ChunkHandoff(connection.input, to: Checksum(), on: .global(), limits: limits)
/// ```
///
/// A chunk counts from before its memory is taken until that has been freed, which is as soon as it has been
/// processed; and so does the room that a hand-off has been granted, but has not come round to use. A hand-off
/// that ends, fails or is cancelled leaves the line, and gives back what it had; the chunk that is in the
/// processor's hands then, or being read from a file, when that is over.
///
/// What a hand-off keeps, the others lack: chunks that wait on a queue that stands still, for a loop that does
/// not run, or for ``ChunkHandoff/resume()``. A server that cannot trust its peers cancels those that make it
/// wait too long.
///
/// What a processor keeps is not counted, nor is the beginning of a line that a ``LineReader`` waits to end.
///
/// All of it may be used from any thread, and by hand-offs of any loops.
public final class ByteBudget: Sendable {
    /// The most bytes in use at a time; but one chunk is always allowed when there is no other.
    public let limit: Int
    private let line: Mutex<BudgetLine>

    /// Makes a budget that nobody uses yet.
    ///
    /// - Parameter limit: In bytes. If a chunk is larger, there is never more than one.
    /// - Precondition: `limit` is positive.
    public init(limit: Int) {
        precondition(limit > 0, "a budget has room for at least one byte")
        self.limit = limit
        line = Mutex(BudgetLine(limit: limit))
    }

    /// The bytes of the chunks that there are, and of the room that has been granted for more.
    public var inUse: Int { line.withLock { $0.inUse } }
}

extension ByteBudget {
    /// What somebody gets who asks for room.
    enum Admission {
        case room(ByteCredit)
        /// A place in the line.
        case place(BudgetLine.Ticket)
    }

    /// Takes room for a chunk, or a place in the line: then `callback` is called once there is room.
    func take(_ byteCount: Int, orCall callback: Callback) -> Admission {
        let ticket = line.withLock { $0.take(byteCount) ? nil : $0.enter(byteCount, orCall: callback) }
        return if let ticket { .place(ticket) } else { .room(ByteCredit(byteCount, of: self)) }
    }

    /// Takes the room that has been granted to the holder of `ticket`, which is used up by that; nil if it is
    /// not the holder's turn yet.
    func redeem(_ ticket: BudgetLine.Ticket) -> ByteCredit? {
        line.withLock { $0.redeem(ticket) }.map { ByteCredit($0, of: self) }
    }

    /// Gives up a place, or the room that was granted for it.
    ///
    /// - Returns: Who got room by that: to be rung when the caller has nothing locked.
    func leave(_ ticket: BudgetLine.Ticket) -> [Callback] { line.withLock { $0.leave(ticket) } }

    fileprivate func giveBack(_ byteCount: Int) {
        for callback in line.withLock({ $0.giveBack(byteCount) }) { callback() }
    }
}

/// Room for a chunk, which ending the object's lifetime gives back.
final class ByteCredit: Sendable {
    private let byteCount: Int
    private let budget: ByteBudget

    fileprivate init(_ byteCount: Int, of budget: ByteBudget) {
        self.byteCount = byteCount
        self.budget = budget
    }

    deinit { budget.giveBack(byteCount) }
}

/// Who has how much of a budget, and who waits for it. Pure: it decides, and says whose callbacks are to be rung.
struct BudgetLine {
    /// A place in the line. Lower ones were there before.
    struct Ticket: Hashable, Comparable {
        fileprivate var number = 0

        static func < (left: Ticket, right: Ticket) -> Bool { left.number < right.number }
    }

    private struct Request {
        let byteCount: Int
        let callback: Callback
    }

    private let limit: Int
    /// What is taken and what is granted.
    private(set) var inUse = 0
    private var waiting: [Ticket: Request] = [:]
    /// The bytes that wait to be redeemed.
    private var granted: [Ticket: Int] = [:]
    /// The head of the line, or a place before it that has been given up.
    private var first = Ticket()
    /// The next ticket.
    private var next = Ticket()

    init(limit: Int) { self.limit = limit }

    /// Takes room, if nobody waits for it; false if there is none.
    mutating func take(_ byteCount: Int) -> Bool {
        guard waiting.isEmpty, fits(byteCount) else { return false }
        inUse += byteCount
        return true
    }

    mutating func enter(_ byteCount: Int, orCall callback: Callback) -> Ticket {
        let ticket = next
        next.number += 1
        waiting[ticket] = Request(byteCount: byteCount, callback: callback)
        return ticket
    }

    /// What has been granted: to be given back by the caller in the end.
    mutating func redeem(_ ticket: Ticket) -> Int? { granted.removeValue(forKey: ticket) }

    /// Gives up a place, which may have been in the way of others, or what was granted for it.
    mutating func leave(_ ticket: Ticket) -> [Callback] {
        waiting[ticket] = nil
        return giveBack(granted.removeValue(forKey: ticket) ?? 0)
    }

    mutating func giveBack(_ byteCount: Int) -> [Callback] {
        inUse -= byteCount
        return grant()
    }

    /// Grants room from the head of the line on, as far as it goes.
    private mutating func grant() -> [Callback] {
        var callbacks: [Callback] = []
        while first < next {
            if let request = waiting[first] {
                guard fits(request.byteCount) else { break }
                waiting[first] = nil
                granted[first] = request.byteCount
                inUse += request.byteCount
                callbacks.append(request.callback)
            }
            first.number += 1
        }
        return callbacks
    }

    private func fits(_ byteCount: Int) -> Bool { inUse == 0 || byteCount <= limit - inUse }
}
