/// A limit on the memory that the chunks of many hand-offs take together.
///
/// Set the same budget in the ``HandoffLimits`` of all of them: a thousand connections that all send at once
/// then take no more than `limit` bytes, and idle ones none. A hand-off that finds no room is not read until
/// it gets some. Hand-offs queue for room, a chunk at a time, first come, first served.
///
/// ```swift
/// let budget = ByteBudget(limit: 4 << 20)
/// let limits = HandoffLimits(chunkSize: 16_384, bytesInFlight: 32_768, budget: budget)
/// let handoff = ChunkHandoff(connection.streams.input, to: Checksum(), on: .global(), limits: limits)
/// ```
///
/// A chunk counts from before its memory is allocated until it is freed, which is as soon as it has been
/// processed. Room that has been granted to a hand-off counts too, before it is used. A hand-off that ends,
/// fails or is cancelled leaves the queue and releases its room; the room of a chunk that is being processed,
/// or read from a file, is released after that.
///
/// Chunks that wait for a suspended queue, for a loop that does not run, or for ``ChunkHandoff/resume()``
/// take room from the other hand-offs. A server that cannot trust its peers cancels hand-offs that wait too
/// long.
///
/// The budget does not count the memory of a processor, nor the beginning of a line whose end a
/// ``LineReader`` waits for.
///
/// Any thread may use a budget, and hand-offs of any loops may share it.
public final class ByteBudget: Sendable {
    /// The maximum number of bytes in use at a time. A single chunk is always allowed.
    package let limit: Int
    private let queue: Mutex<BudgetQueue>

    /// Creates an unused budget.
    ///
    /// - Parameter limit: In bytes. If a chunk is larger, there is never more than one.
    /// - Precondition: `limit` is positive.
    public init(limit: Int) {
        require(limit > 0, "ByteBudget.limit must be positive, not \(limit).")
        self.limit = limit
        queue = Mutex(BudgetQueue(limit: limit))
    }

    /// The bytes of all chunks, and of the room that has been granted for more.
    package var inUse: Int { queue.withLock { $0.inUse } }
}

extension ByteBudget {
    /// The result of asking for room.
    enum Admission {
        case reserved(ByteReservation)
        /// The request waits in the queue.
        case queued(BudgetQueue.RequestID)
    }

    /// Reserves room for a chunk; or queues a request, and calls `callback` once it is granted.
    func reserve(_ byteCount: Int, orCall callback: Callback) -> Admission {
        let request = queue.withLock { $0.reserve(byteCount) ? nil : $0.enqueue(byteCount, orCall: callback) }
        return if let request { .queued(request) } else { .reserved(ByteReservation(byteCount, of: self)) }
    }

    /// Takes the room that has been granted to `request`, which is over then; nil if it has not been granted
    /// yet.
    func claim(_ request: BudgetQueue.RequestID) -> ByteReservation? {
        queue.withLock { $0.claim(request) }.map { ByteReservation($0, of: self) }
    }

    /// Cancels a request, or releases the room that was granted to it.
    ///
    /// - Returns: The callbacks of the requests that are granted by that, to call with nothing locked.
    func cancel(_ request: BudgetQueue.RequestID) -> [Callback] { queue.withLock { $0.cancel(request) } }

    fileprivate func release(_ byteCount: Int) {
        for callback in queue.withLock({ $0.release(byteCount) }) { callback() }
    }
}

/// Room for a chunk. Its deinitializer releases the room.
final class ByteReservation: Sendable {
    private let byteCount: Int
    private let budget: ByteBudget

    fileprivate init(_ byteCount: Int, of budget: ByteBudget) {
        self.byteCount = byteCount
        self.budget = budget
    }

    deinit { budget.release(byteCount) }
}

/// The room of a budget, and the requests that wait for some. Pure: it returns the callbacks to call.
struct BudgetQueue {
    /// The number of a request. Lower ones came first.
    typealias RequestID = Int

    private struct Request {
        let byteCount: Int
        let callback: Callback
    }

    private let limit: Int
    /// The bytes reserved and granted.
    private(set) var inUse = 0
    private var waiting: [RequestID: Request] = [:]
    /// The bytes granted and not claimed yet.
    private var granted: [RequestID: Int] = [:]
    /// The first request of the queue, or a cancelled one before it.
    private var first = 0
    /// The number of the next request.
    private var next = 0

    init(limit: Int) { self.limit = limit }

    /// Reserves room unless requests wait for it. Returns false if there is none.
    mutating func reserve(_ byteCount: Int) -> Bool {
        guard waiting.isEmpty, fits(byteCount) else { return false }
        inUse += byteCount
        return true
    }

    mutating func enqueue(_ byteCount: Int, orCall callback: Callback) -> RequestID {
        let request = next
        next += 1
        waiting[request] = Request(byteCount: byteCount, callback: callback)
        return request
    }

    /// Takes the bytes that have been granted. The caller releases them in the end.
    mutating func claim(_ request: RequestID) -> Int? { granted.removeValue(forKey: request) }

    /// Cancels a request, which may have been in the way of others, or releases the bytes granted to it.
    mutating func cancel(_ request: RequestID) -> [Callback] {
        waiting[request] = nil
        return release(granted.removeValue(forKey: request) ?? 0)
    }

    mutating func release(_ byteCount: Int) -> [Callback] {
        inUse -= byteCount
        return grant()
    }

    /// Grants room in the queue's order, as long as there is some.
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
            first += 1
        }
        return callbacks
    }

    private func fits(_ byteCount: Int) -> Bool { inUse == 0 || byteCount <= limit - inUse }
}
