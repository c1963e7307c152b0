import CReactorLinux
import Glibc
import SystemPackage

/// Closes a connection so that what was written to it arrives.
///
/// close(2) of a TCP socket with unread input, or input that comes later, resets the connection, and the kernel drops
/// what it has not sent yet. So the socket is shut down for writing first, and what the peer still sends is read and
/// dropped, until the peer has closed too or has acknowledged everything and says no more. Confined to the streams
/// thread's loop.
final class GracefulClose {
    /// How long a peer that has everything, and does not close, is read: as long as nginx's lingering_timeout.
    private static let quietTimeout: Duration = .seconds(5)
    /// Nothing reports an acknowledgement: the socket is asked at growing intervals up to this.
    private static let longestInterval: Duration = .milliseconds(100)

    /// The connection's socket, by a descriptor of its own.
    private let socket: DescriptorHolder
    /// Whether input is read and dropped until the peer has closed too.
    private let readsInput: Bool
    private let engine: StreamEngine?
    /// How long the peer may take no byte.
    private let stallTimeout: Duration
    private var source: DescriptorSource?
    private var timer: Timer?
    private var interval: Duration = .milliseconds(1)
    private var unsent: Int
    private var lastProgress = Deadline.now
    private var isAtEnd = false
    private var isWatched = false
    private var hasEnded = false

    private init(
        _ socket: DescriptorHolder, readsInput: Bool, stallTimeout: Duration?, for engine: StreamEngine?
    ) {
        self.socket = socket
        self.readsInput = readsInput
        self.stallTimeout = stallTimeout ?? WriteBuffer.defaultStallTimeout
        self.engine = engine
        unsent = socket.unsentByteCount
    }

    /// Whether close(2) alone could lose bytes.
    static func isNeeded(for socket: DescriptorHolder) -> Bool {
        socket.unsentByteCount > 0 || socket.hasUnreadBytes && socket.hasSent
    }

    /// Closes the socket of `holder`, by another descriptor or by that itself if no other can be had. If a thread is
    /// still using it then, what has come is read and dropped at least.
    static func begin(for holder: DescriptorHolder, stallTimeout: Duration?, engine: StreamEngine?) {
        if let own = holder.duplicate() ?? holder.move() {
            return begin(own, stallTimeout: stallTimeout, engine: engine)
        }
        try? holder.shutDown()
        _ = holder.discardInput()
    }

    /// Closes the socket on the streams thread, or here if there is nothing to wait for.
    ///
    /// - Parameters:
    ///   - socket: A descriptor that nothing else uses.
    ///   - engine: The stream that learns, by its status, of bytes that are lost.
    static func begin(_ socket: DescriptorHolder, stallTimeout: Duration?, engine: StreamEngine?) {
        // A Unix-domain peer has what was sent to it; it only must not find unread input.
        let isTCP = socket.isTCP
        try? socket.shutDown(isTCP ? SHUT_WR : SHUT_RDWR)
        guard case .open = socket.discardInput(), isTCP else { return socket.close() }
        start(socket, readsInput: true, stallTimeout, engine)
    }

    /// Delays process exit until the peer has acknowledged what was sent before shutdown(2).
    ///
    /// - Parameter socket: A descriptor that nothing else uses.
    static func awaitAcknowledgement(
        on socket: DescriptorHolder, stallTimeout: Duration?, engine: StreamEngine?
    ) {
        start(socket, readsInput: false, stallTimeout, engine)
    }

    private static func start(
        _ socket: DescriptorHolder, readsInput: Bool, _ stallTimeout: Duration?, _ engine: StreamEngine?
    ) {
        guard let loop = try? ResidentThread.streams.runLoop() else { return socket.close() }
        PendingOutput.begin()
        loop.perform {
            GracefulClose(socket, readsInput: readsInput, stallTimeout: stallTimeout, for: engine).begin()
        }
    }

    private func begin() {
        if readsInput {
            let source = DescriptorSource(FileDescriptor(rawValue: socket.number), for: .readable) { _, _ in
                self.read()
            }
            self.source = source
            // Without a registration the socket is read whenever it is checked.
            isWatched = (try? RunLoop.current.add(source, forMode: .default)) != nil
        }
        check()
    }

    private func read() {
        switch socket.discardInput() {
        case .open: break
        case .failed(let error): fail(error)
        case .atEnd:
            // The kernel would report the end again and again.
            source?.cancel()
            isAtEnd = true
            check()
        }
    }

    private func check() {
        guard !hasEnded else { return }
        // While the stream still reads, an error is for it to collect: asking for it would clear it.
        if readsInput, let error = socket.socketError { return fail(error) }
        if !readsInput, socket.events(among: 0) & CInt(POLLERR | POLLHUP) != 0 { return end() }
        // Nothing else reads any more, and unread input would reset the connection.
        if PendingOutput.isExiting { _ = socket.discardInput() }
        if readsInput, !isWatched, !isAtEnd, case .atEnd = socket.discardInput() { isAtEnd = true }
        let (now, left) = (Deadline.now, socket.unsentByteCount)
        if left < unsent { (unsent, lastProgress) = (left, now) }
        let stall = lastProgress.duration(to: now)
        if left == 0, isAtEnd || !readsInput || PendingOutput.isExiting || stall >= Self.quietTimeout {
            return end()
        }
        if left > 0, stall >= stallTimeout { return fail(.timedOut) }
        timer?.invalidate()
        timer = Timer.scheduled(after: interval) { _ in self.check() }
        interval = min(interval * 2, Self.longestInterval)
    }

    private func fail(_ error: Errno) {
        // The last acknowledgement may have come since the last check.
        if min(unsent, socket.unsentByteCount) > 0 { engine?.noteLostBytes(error) }
        end()
    }

    private func end() {
        guard !hasEnded else { return }
        hasEnded = true
        source?.cancel()
        timer?.invalidate()
        socket.close()
        PendingOutput.end()
    }
}
