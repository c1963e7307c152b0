import Glibc
import Synchronization
import SystemPackage

/// The half of a socket that is written.
///
/// What the kernel has no room for is kept, up to a limit, and sent when the kernel tells of room: a peer
/// that does not read costs that much memory and no more, and does not hold up the loop's thread.
final class SocketOutput: OutputBackend {
    private let channel: SocketChannel
    private let backlog = Mutex(SocketBacklog())
    /// Whether anything is kept: spares a write that finds room the lock.
    private let hasBacklog = Atomic(false)
    /// Whether what was kept is being sent though the stream is closed, and the half will be closed after that.
    private let isLingering = Atomic(false)

    init(_ channel: SocketChannel) { self.channel = channel }

    private var holder: DescriptorHolder { channel.holder }

    var descriptor: DescriptorHolder? { holder }

    var refusal: (any Error)? { channel.refusal }

    var readying: Readying { .kernelWhenBlocked }

    func open(for engine: StreamEngine) throws(Errno) { channel.open(.output, for: engine) }

    func progress() -> Prospect { channel.progress }

    func waitUntilOpen() { channel.waitUntilOpen(.output) }

    func prepare() -> Prospect { channel.fault.map { .failed($0) } ?? .waiting }

    func isReady() -> Bool {
        if channel.fault != nil { return true }
        if hasBacklog.load(ordering: .acquiring) { return room > 0 }
        return holder.isReady(for: CInt(POLLOUT))
    }

    /// What the kernel has no room for is kept for a stream on a loop. So there is room until that much is kept,
    /// whatever poll(2) says, which wants more than a byte's worth.
    func hasRoom(isScheduled: Bool) -> Bool {
        isScheduled && channel.fault == nil ? room > 0 : isReady()
    }

    // MARK: Writing

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        while true {
            if let fault = channel.fault { throw fault }
            let isClear = hasBacklog.load(ordering: .acquiring) ? try flush().isEmpty : true
            let sent = isClear ? try unsafe send(bytes) : 0
            if sent == bytes.count { return Transfer(count: sent) }
            let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[sent...])
            let kept = unsafe isScheduled ? keep(rest) : 0
            if sent + kept > 0 { return Transfer(count: sent + kept, isBlocked: true) }
            try channel.wait(for: CInt(POLLOUT), .output)
        }
    }

    private func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int {
        do throws(Errno) {
            let sent = try unsafe channel.send(bytes)
            channel.noteSent(sent, isBlocked: sent < bytes.count)
            return sent
        } catch {
            channel.fail(error, on: .output)
            throw channel.fault ?? error
        }
    }

    // MARK: What is kept

    private var limits: (low: Int, high: Int) {
        channel.state.withLock { ($0.details.options.lowWatermark, $0.details.options.highWatermark) }
    }

    var keptCount: Int { backlog.withLock { $0.count } }

    private var room: Int { limits.high - keptCount }

    private func keep(_ bytes: UnsafeRawBufferPointer) -> Int {
        let limit = limits.high
        return backlog.withLock { backlog in
            let kept = unsafe backlog.append(bytes, limit: limit)
            if kept > 0 { hasBacklog.store(true, ordering: .releasing) }
            return kept
        }
    }

    /// Sends what is kept, as far as the kernel takes it.
    private func flush() throws(Errno) -> (isEmpty: Bool, count: Int) {
        let (outcome, isShutDown) = backlog.withLock { backlog in
            let outcome = Result { () throws(Errno) in
                try unsafe backlog.send { (bytes) throws(Errno) in try unsafe send(bytes) }
            }
            if backlog.count == 0 { hasBacklog.store(false, ordering: .releasing) }
            return (outcome.map { (backlog.count == 0, backlog.count) }, backlog.isShutDown)
        }
        let (isEmpty, count) = try outcome.get()
        if isEmpty, isShutDown { try holder.shutDown() }
        return (isEmpty, count)
    }

    func drain() throws(Errno) -> Drainage {
        guard hasBacklog.load(ordering: .acquiring) else { return Drainage(hasRoom: true, isDone: true) }
        let ((isEmpty, count), limits) = (try flush(), limits)
        // The marks may have been set the wrong way round, or lower than what is kept.
        return Drainage(hasRoom: count <= limits.low && count < limits.high, isDone: isEmpty)
    }

    // MARK: The end

    /// Sends what is kept, and then tells the peer that nothing more will come.
    func shutDown() throws(Errno) {
        if let fault = channel.fault { throw fault }
        let isWaiting = backlog.withLock { backlog in
            backlog.isShutDown = true
            return backlog.count > 0
        }
        if !isWaiting { try holder.shutDown() }
    }

    /// What is kept goes on being sent, in the background.
    func close() throws(Errno) {
        let rest = backlog.withLock { backlog in
            defer { backlog = SocketBacklog() }
            return backlog
        }
        hasBacklog.store(false, ordering: .releasing)
        guard rest.count > 0, channel.fault == nil else {
            // A stream is closed once more when it is let go of.
            if !isLingering.load(ordering: .acquiring) { channel.close(.output) }
            return
        }
        isLingering.store(true, ordering: .releasing)
        channel.dismiss(.output)
        SocketLinger.begin(rest, of: channel)
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? { channel.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { channel.setProperty(value, key) }
}
