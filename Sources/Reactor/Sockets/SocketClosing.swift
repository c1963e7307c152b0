import CReactorLinux
import Glibc
import SystemPackage

/// Closes a connection so that what was written to it arrives.
///
/// close(2) of a TCP socket with unread input, or input that comes later, resets the connection, and the kernel drops
/// what it has not sent yet. So the socket is shut down for writing first, and what the peer still sends is read and
/// dropped, until the peer has closed too or has acknowledged everything and says no more. Confined to the streams
/// thread's loop.
final class SocketClosing {
    /// How long a peer that has everything, and does not close, is read: as long as nginx's lingering_timeout.
    private static let quietPatience: Duration = .seconds(5)
    /// Nothing tells of an acknowledgement: the socket is asked at growing intervals up to this.
    private static let longestInterval: Duration = .milliseconds(100)

    private let number: CInt
    /// Whether input is read and dropped until the peer has closed too.
    private let readsInput: Bool
    private let engine: StreamEngine?
    private let patience: Duration
    private var source: DescriptorSource?
    private var timer: Timer?
    private var interval: Duration = .milliseconds(1)
    private var unsent: Int
    private var lastProgress = Deadline.now
    private var isAtEnd = false
    private var isWatched = false
    private var hasEnded = false

    private init(_ number: CInt, readsInput: Bool, patience: Duration?, for engine: StreamEngine?) {
        self.number = number
        self.readsInput = readsInput
        self.patience = patience ?? WriteBuffer.defaultStallTimeout
        self.engine = engine
        unsent = Self.unsentCount(number)
    }

    // MARK: Whether it is needed

    static func hasUnsentBytes(_ holder: DescriptorHolder) -> Bool {
        (try? holder.use { (number) throws(Errno) in unsentCount(number) > 0 }) ?? false
    }

    /// Whether close(2) alone could lose bytes.
    static func isNeeded(for holder: DescriptorHolder) -> Bool {
        let isNeeded = try? holder.use { (number) throws(Errno) in
            unsentCount(number) > 0 || count(number, UInt(FIONREAD)) > 0 && reactor_has_sent(number)
        }
        return isNeeded ?? false
    }

    /// How many bytes the peer has not acknowledged. None for other sockets than TCP's, whose bytes are the peer's as
    /// soon as they are sent.
    private static func unsentCount(_ number: CInt) -> Int {
        let count = count(number, UInt(TIOCOUTQ))  // SIOCOUTQ
        return count > 0 && isTCP(number) ? count : 0
    }

    private static func count(_ number: CInt, _ request: UInt) -> Int {
        var count: CInt = 0
        return unsafe ioctl(number, request, &count) == 0 ? Int(count) : 0
    }

    /// Whether the kernel may reset the connection, as it does with all but Unix-domain ones.
    private static func isTCP(_ number: CInt) -> Bool {
        var (domain, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
        return unsafe getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX
    }

    // MARK: Closing

    /// Closes the holder's socket by a duplicate of its descriptor, or by that itself if no other can be had. If a thread
    /// is still using it then, what has come is read and dropped at least.
    static func begin(_ holder: DescriptorHolder, patience: Duration?, for engine: StreamEngine?) {
        if let own = holder.duplicate() ?? holder.take() {
            return begin(own, patience: patience, for: engine)
        }
        _ = try? holder.use { (number) throws(Errno) in
            shutdown(number, CInt(SHUT_WR))
            _ = discardInput(number)
        }
    }

    /// Closes the socket on the streams thread, or here if there is nothing to wait for.
    ///
    /// - Parameters:
    ///   - number: The socket, which nothing else uses any more.
    ///   - engine: The stream that learns, by its status, of bytes that are lost.
    static func begin(_ number: CInt, patience: Duration?, for engine: StreamEngine?) {
        // A Unix-domain peer has what was sent to it; it only must not find unread input.
        let isTCP = isTCP(number)
        shutdown(number, CInt(isTCP ? SHUT_WR : SHUT_RDWR))
        if case .open = discardInput(number), isTCP {
            start(number, readsInput: true, patience, engine)
        } else {
            close(number)
        }
    }

    /// Delays process exit until the peer has acknowledged what was sent before shutdown(2).
    ///
    /// - Parameter number: A descriptor of the socket, which this closes.
    static func awaitAcknowledgement(_ number: CInt, patience: Duration?, for engine: StreamEngine?) {
        start(number, readsInput: false, patience, engine)
    }

    private static func start(
        _ number: CInt, readsInput: Bool, _ patience: Duration?, _ engine: StreamEngine?
    ) {
        guard let loop = try? ResidentThread.streams.runLoop() else {
            close(number)
            return
        }
        PendingOutput.begin()
        loop.perform {
            SocketClosing(number, readsInput: readsInput, patience: patience, for: engine).begin()
        }
    }

    private func begin() {
        if readsInput {
            let source = DescriptorSource(FileDescriptor(rawValue: number), for: .readable) { _, _ in
                self.read()
            }
            self.source = source
            // Without a registration the socket is read whenever it is checked.
            isWatched = (try? RunLoop.current.add(source, forMode: .default)) != nil
        }
        check()
    }

    /// What reading and dropping has come to.
    private enum Input {
        case open
        case atEnd
        case failed(Errno)
    }

    /// Reads and drops what has come, but no more than a pass of the loop should take.
    private static func discardInput(_ number: CInt) -> Input {
        unsafe withUnsafeTemporaryAllocation(byteCount: 16_384, alignment: 1) { buffer in
            for _ in 0..<64 {
                let count = unsafe reactor_receive(number, buffer.baseAddress, buffer.count)
                if count == 0 { return .atEnd }
                if count == -Int(EAGAIN) { return .open }
                if count < 0 { return .failed(Errno(rawValue: CInt(-count))) }
            }
            return .open
        }
    }

    private func read() {
        switch Self.discardInput(number) {
        case .open: break
        case .failed(let error): fail(error)
        case .atEnd:
            // The kernel would tell of the end again and again.
            source?.cancel()
            isAtEnd = true
            check()
        }
    }

    private func check() {
        guard !hasEnded else { return }
        // While the stream still reads, an error is for it to collect: asking for it would clear it.
        if readsInput, let error = socketError { return fail(error) }
        if !readsInput, hasEvents(CInt(POLLERR | POLLHUP)) { return end() }
        // Nothing else reads any more, and unread input would reset the connection.
        if PendingOutput.isExiting { _ = Self.discardInput(number) }
        if readsInput, !isWatched, !isAtEnd, case .atEnd = Self.discardInput(number) { isAtEnd = true }
        let (now, left) = (Deadline.now, Self.unsentCount(number))
        if left < unsent { (unsent, lastProgress) = (left, now) }
        let stall = lastProgress.duration(to: now)
        if left == 0, isAtEnd || !readsInput || PendingOutput.isExiting || stall >= Self.quietPatience {
            return end()
        }
        if left > 0, stall >= patience { return fail(.timedOut) }
        timer?.invalidate()
        timer = Timer.scheduled(after: interval) { _ in self.check() }
        interval = min(interval * 2, Self.longestInterval)
    }

    private func hasEvents(_ events: CInt) -> Bool {
        var request = pollfd(fd: number, events: 0, revents: 0)
        return unsafe poll(&request, 1, 0) > 0 && CInt(request.revents) & events != 0
    }

    private var socketError: Errno? {
        var (code, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
        guard unsafe getsockopt(number, SOL_SOCKET, SO_ERROR, &code, &size) == 0, code != 0 else {
            return nil
        }
        return Errno(rawValue: code)
    }

    private func fail(_ error: Errno) {
        // The last acknowledgement may have come since the last check.
        if min(unsent, Self.unsentCount(number)) > 0 { engine?.noteLostBytes(error) }
        end()
    }

    private func end() {
        guard !hasEnded else { return }
        hasEnded = true
        source?.cancel()
        timer?.invalidate()
        close(number)
        PendingOutput.end()
    }
}
