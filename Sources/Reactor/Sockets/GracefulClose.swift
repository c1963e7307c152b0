import CReactorLinux
import Glibc
import SystemPackage

/// Closes a connection after its output has arrived.
///
/// close(2) of a TCP socket resets the connection if there is unread input, or if input arrives later, and
/// the kernel then discards unsent output. So the socket is shut down for writing first. Input is read and
/// dropped until the peer closes too, or has acknowledged everything and is silent. Confined to the streams
/// thread's loop.
final class GracefulClose: EventSource {
    /// How long a peer that has acknowledged everything may be silent: as long as nginx's lingering_timeout.
    private static let quietTimeout: Duration = .seconds(5)
    /// How long such a peer may keep sending: as long as nginx's lingering_time.
    private static let sendingTimeout: Duration = .seconds(30)
    /// No event reports an acknowledgement: the socket is polled at growing intervals up to this one.
    private static let longestInterval: Duration = .milliseconds(100)

    /// The connection's socket, with a descriptor that nothing else uses.
    private let socket: SharedDescriptor
    /// Whether to read and drop input until the peer closes too.
    private let readsInput: Bool
    private let engine: StreamEngine?
    private let limits: WriteBuffer.Limits
    private var timer: Timer?
    private var interval: Duration = .milliseconds(1)
    private var unacknowledged = Int.max
    private var lastProgress = Deadline.now
    private var lastInput = Deadline.now
    private var isAtEnd = false

    private init(
        _ socket: SharedDescriptor, readsInput: Bool, within limits: WriteBuffer.Limits,
        for engine: StreamEngine?
    ) {
        self.socket = socket
        self.readsInput = readsInput
        self.limits = limits
        self.engine = engine
        super.init(-1, for: [])
    }

    /// Whether close(2) alone could lose bytes.
    ///
    /// - Parameter isAtEnd: Whether the end of the input has been received.
    static func isNeeded(for socket: SharedDescriptor, isAtEnd: Bool) -> Bool {
        socket.unacknowledgedByteCount > 0 || !isAtEnd && socket.hasUnreadBytes && socket.hasSent
    }

    /// Closes the socket through a duplicate of its descriptor, or through the descriptor itself
    /// if there is no other. If another thread still uses it then, only the input that has arrived is read
    /// and dropped.
    ///
    /// - Returns: The descriptor that is closed in the end; nil if that is the other thread's.
    @discardableResult
    static func begin(
        for shared: SharedDescriptor, within limits: WriteBuffer.Limits, engine: StreamEngine?
    ) -> SharedDescriptor? {
        var own = shared.duplicate()
        if own == nil {
            // First, because moving it refuses further uses, even if it fails.
            _ = endOutput(of: shared)
            own = shared.move()
        }
        if let own { begin(own, within: limits, engine: engine) }
        return own
    }

    /// Closes the socket on the streams thread, or at once if there is nothing to wait for.
    ///
    /// - Parameters:
    ///   - socket: A descriptor that nothing else uses.
    ///   - engine: The engine whose stream fails if bytes are lost.
    static func begin(_ socket: SharedDescriptor, within limits: WriteBuffer.Limits, engine: StreamEngine?) {
        switch endOutput(of: socket) {
        case .awaited:
            return awaitAcknowledgement(on: socket, readsInput: true, within: limits, engine: engine)
        case .lost: engine?.noteLostBytes(.connectionReset)
        case .none: break
        }
        socket.close()
    }

    /// The work that closing has left.
    private enum Remainder {
        case none
        /// Acknowledgements, or the peer's end.
        case awaited
        /// Bytes that a peer which has reset the connection will never acknowledge.
        case lost
    }

    /// Ends the output, and drops the input that has arrived.
    private static func endOutput(of socket: SharedDescriptor) -> Remainder {
        // A Unix-domain peer has everything that was sent. Only unread input would reset its connection.
        let mayBeReset = socket.mayBeReset
        try? socket.shutDown(mayBeReset ? SHUT_WR : SHUT_RDWR)
        let input = socket.discardInput()
        guard mayBeReset else { return .none }
        if case .open = input { return .awaited }
        guard socket.unacknowledgedByteCount > 0 else { return .none }
        return socket.isDisconnected ? .lost : .awaited
    }

    /// Delays process exit until the peer has acknowledged the bytes that were sent before shutdown(2).
    ///
    /// - Parameters:
    ///   - socket: A descriptor that nothing else uses.
    ///   - readsInput: Whether to read and drop input until the peer closes too.
    static func awaitAcknowledgement(
        on socket: SharedDescriptor, readsInput: Bool = false, within limits: WriteBuffer.Limits,
        engine: StreamEngine?
    ) {
        guard let loop = try? ResidentThread.streams.runLoop() else { return socket.close() }
        PendingOutput.begin()
        loop.perform {
            GracefulClose(socket, readsInput: readsInput, within: limits, for: engine).begin()
        }
    }

    private func begin() {
        if readsInput {
            adopt(socket)
            try? changeInterest(.readable)
            // If it cannot be registered, the socket is read at each check.
            try? RunLoop.current.add(self, forMode: .default)
        }
        check()
    }

    override func serve(_ readiness: Readiness) -> Bool {
        switch socket.discardInput() {
        case .open: lastInput = .now
        case .failed(let error): fail(error)
        case .atEnd:
            // Level-triggered: the kernel would keep reporting the end.
            try? changeInterest([])
            isAtEnd = true
            check()
        }
        return true
    }

    private func check() {
        guard !isEnded else { return }
        // Getting SO_ERROR clears it, and the stream may still be reading.
        if readsInput, let error = socket.socketError { return fail(error) }
        let (now, left) = (Deadline.now, socket.unacknowledgedByteCount)
        if left > 0, socket.isDisconnected { return fail(.connectionReset) }
        if !readsInput, socket.events(among: 0) & CInt(POLLERR | POLLHUP) != 0 { return cancel() }
        // At exit nothing else reads, and unread input would reset the connection.
        if PendingOutput.isExiting { _ = socket.discardInput() }
        if readsInput, !isRegistered, !isAtEnd, case .atEnd = socket.discardInput() { isAtEnd = true }
        if left < unacknowledged { (unacknowledged, lastProgress) = (left, now) }
        let (stall, silence) = (lastProgress.duration(to: now), lastInput.duration(to: now))
        let hasWaited = min(stall, silence) >= Self.quietTimeout || stall >= Self.sendingTimeout
        if left == 0, isAtEnd || !readsInput || PendingOutput.isExiting || hasWaited { return cancel() }
        let isLate = limits.end.map { $0 <= now } ?? false
        if left > 0, isLate || stall >= limits.stallTimeout {
            // An output that was only shut down has an input that may still be read, and its bytes are the kernel's.
            return readsInput ? fail(.timedOut) : cancel()
        }
        if isLate { return cancel() }
        timer?.invalidate()
        timer = Timer.scheduled(after: interval) { _ in self.check() }
        interval = min(interval * 2, Self.longestInterval)
    }

    private func fail(_ error: Errno) {
        // The last acknowledgement may have arrived since the last check.
        if min(unacknowledged, socket.unacknowledgedByteCount) > 0 { engine?.noteLostBytes(error) }
        // Closing would leave the bytes to the kernel, for as long as the peer takes.
        if error == .timedOut { socket.reset() }
        cancel()
    }

    override func ended() {
        timer?.invalidate()
        socket.close()
        PendingOutput.end()
    }
}
