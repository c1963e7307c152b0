import Glibc
import Synchronization
import SystemPackage

/// An output whose kernel buffer can fill up: a socket, pipe or terminal.
///
/// Without a write buffer, `write` blocks only if the kernel takes no byte. With one, it blocks only off a
/// run loop. An output whose writes must not be joined has none: its ``buffer`` is nil.
protocol BufferedOutput: OutputBackend {
    /// The descriptor that the bytes are sent to.
    var target: SharedDescriptor { get }
    var buffer: WriteBuffer? { get }
    /// Why no more bytes can be sent.
    var failure: Errno? { get }
    /// Sends as many bytes as the kernel has room for, and returns how many; 0 if it has none.
    func send(_ bytes: RawSpan) throws(Errno) -> Int
    /// Whether the kernel has room.
    var hasKernelRoom: Bool { get }
    /// Called when the kernel has no room.
    func noteFull()
    /// Called when poll(2) reports an error: throws what a write would throw, without notifying the other half.
    func checkPeer() throws(Errno)
    /// What the next bytes need room in.
    var roomSource: RoomSource { get }
    /// Accepts bytes without waiting.
    ///
    /// - Parameter buffer: ``buffer`` as it was when the write began.
    func accept(_ bytes: RawSpan, into buffer: WriteBuffer?) throws(Errno) -> Transfer
    /// Whether a write by a loop's thread returns 0 instead of waiting.
    func mayAcceptNothing(_ buffer: WriteBuffer?) -> Bool
    /// How long the receiver may take nothing once nothing owns the output.
    var stallLimits: WriteBuffer.Limits { get }
    /// Waits until `buffer`, or the kernel without one, has room, or there is a fault; throws `canceled` once
    /// the stream is closed.
    func waitForRoom(in buffer: WriteBuffer?) throws(Errno)
}

/// What the next bytes of an output need room in.
enum RoomSource {
    case kernel
    case buffer(WriteBuffer)
    /// None has room before the handshake is complete.
    case handshake
}

extension BufferedOutput {
    var descriptor: SharedDescriptor? { target }

    var hasKernelRoom: Bool { target.isReady(for: CInt(POLLOUT)) }

    func noteFull() {}

    var readinessSource: ReadinessSource { .kernelWhenFull }

    var roomSource: RoomSource { bufferOrKernel }

    var bufferOrKernel: RoomSource {
        if let buffer, buffer.isInUse { .buffer(buffer) } else { .kernel }
    }

    /// Ready when a write buffer is at its low-water mark; without one the kernel reports room.
    func prepare() -> Availability {
        if let failure { return .failed(failure) }
        guard case .buffer(let buffer) = roomSource else { return .waiting }
        return buffer.requestRoom() == .found ? .ready : .waiting
    }

    func isReady() -> Bool {
        if failure != nil { return true }
        switch roomSource {
        case .kernel: return hasKernelRoom
        case .buffer(let buffer): return buffer.hasRoom
        case .handshake: return false
        }
    }

    func checkRoom() throws(Errno) -> Room { try checkRoomInKernelOrBuffer() }

    func checkRoomInKernelOrBuffer() throws(Errno) -> Room {
        if let failure { throw failure }
        switch roomSource {
        case .kernel: break
        case .buffer(let buffer): return buffer.requestRoom()
        case .handshake: return .awaited
        }
        let events = target.events(among: CInt(POLLOUT))
        if events & CInt(POLLERR) != 0 { try checkPeer() }
        if events != 0 { return .found }
        noteFull()
        return .full
    }

    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        // The buffer is read once: closing the stream removes it, and later bytes must not overtake its
        // bytes.
        let buffer = buffer
        while true {
            let transfer = try accept(bytes, into: buffer)
            if transfer.count > 0 || isScheduled && mayAcceptNothing(buffer) { return transfer }
            try waitForRoom(in: transfer.room == .awaited ? buffer : nil)
        }
    }

    func writeIfReady(_ bytes: RawSpan) throws(Errno) -> Transfer { try accept(bytes, into: buffer) }

    @inline(__always)
    func accept(_ bytes: RawSpan, into buffer: WriteBuffer?) throws(Errno) -> Transfer {
        try sendOrBuffer(bytes, into: buffer)
    }

    @inline(__always)
    func sendOrBuffer(_ bytes: RawSpan, into buffer: WriteBuffer?) throws(Errno) -> Transfer {
        if let failure { throw failure }
        try buffer?.checkOpen()
        var count = buffer?.isEmpty ?? true ? try send(bytes) : 0
        guard count < bytes.byteCount else { return Transfer(count: count) }
        guard let buffer, buffer.isInUse else { return Transfer(count: count, room: .full) }
        count += try buffer.accept(bytes.extracting(droppingFirst: count), for: target)
        if count == bytes.byteCount { return Transfer(count: count) }
        return Transfer(count: count, room: buffer.isEmpty ? .full : .awaited)
    }

    func mayAcceptNothing(_ buffer: WriteBuffer?) -> Bool { buffer?.isInUse ?? false }

    var isFlushed: Bool { buffer?.isFlushed ?? true }

    func whenFlushed(_ callback: FlushCallback) {
        if let buffer { buffer.whenFlushed(callback) } else { callback() }
    }

    func whenRoom(_ callback: FlushCallback) {
        if case .buffer(let buffer) = roomSource,
            !buffer.isEmpty || !buffer.lacksDescriptor.load(ordering: .relaxed)
        {
            return buffer.whenRoom(callback)
        }
        // Neither the end of a handshake nor a free descriptor is reported.
        let interval = WriteBufferSender.retryInterval
        if let loop = try? ResidentThread.streams.runLoop() {
            return loop.perform { Timer.scheduled(after: interval) { _ in callback() } }
        }
        DispatchWorkers.run {
            _ = EventCount().wait(until: .now + interval) { nil as Void? }
            callback()
        }
    }

    var stallLimits: WriteBuffer.Limits { WriteBuffer.Limits() }

    func limitStall(_ isLimited: Bool) { buffer?.setLimits(isLimited ? stallLimits : nil) }

    func flush(until deadline: Deadline) throws(Errno) {
        try buffer?.flush(until: deadline)
        if let failure { throw failure }
    }
}

/// Holds an output's write buffer. Before the stream opens, only its size.
struct WriteBufferSlot: ~Copyable, Sendable {
    struct Contents {
        var limit = 0
        /// Nil unless the stream is open.
        var engine: StreamEngine?
        var buffer: WriteBuffer?

        fileprivate mutating func makeBuffer(_ client: () -> WriteBuffer.Client) -> Bool {
            if buffer == nil, limit > 0, let engine {
                buffer = WriteBuffer(limit: limit, for: engine, by: client())
            }
            buffer?.limit = limit
            if let engine { buffer?.engine = engine }
            return buffer != nil
        }
    }

    private let contents = Mutex(Contents())
    /// Whether there is a buffer: spares most writes the lock.
    private let isTaken = Atomic(false)

    var buffer: WriteBuffer? {
        isTaken.load(ordering: .acquiring) ? contents.withLock { $0.buffer } : nil
    }

    var hasBuffer: Bool { isTaken.load(ordering: .acquiring) }

    var limit: Int { contents.withLock { $0.limit } }

    func open(for engine: StreamEngine, by client: () -> WriteBuffer.Client) {
        change(client) { $0.engine = engine }
    }

    func setLimit(_ limit: Int, by client: () -> WriteBuffer.Client) {
        change(client) { $0.limit = limit }
    }

    /// The buffer, which is created even for a limit of 0.
    ///
    /// - Parameter engine: Notified unless the output has an engine of its own by now.
    func requireBuffer(for engine: StreamEngine, by client: () -> WriteBuffer.Client) {
        contents.withLock { contents in
            guard contents.buffer == nil else { return }
            let engine = contents.engine ?? engine
            contents.buffer = WriteBuffer(limit: contents.limit, for: engine, by: client())
            isTaken.store(true, ordering: .releasing)
        }
    }

    private func change(_ client: () -> WriteBuffer.Client, _ change: (inout Contents) -> Void) {
        contents.withLock { contents in
            change(&contents)
            isTaken.store(contents.makeBuffer(client), ordering: .releasing)
        }
    }

    /// Releases the engine, and returns the buffer, which continues by itself if it has bytes.
    func close() -> WriteBuffer? {
        isTaken.store(false, ordering: .releasing)
        let (buffer, engine) = contents.withLock { ($0.buffer.take(), $0.engine.take()) }
        withExtendedLifetime(engine) {}
        return buffer
    }
}
