import CReactorLinux
import Dispatch
import Foundation
import Glibc
import Reactor

/// Sends messages to one address, over a connection that all remote ports of the address share.
///
/// The connection is closed when the last of these ports is released or invalidated. `send(_:before:)` blocks
/// the calling thread; concurrent senders take turns.
final class PortSender: Sendable {
    private let signature: PortSignature
    /// A lock with a timeout. Foundation's `NSLock.lock(before:)` traps on distant dates.
    private let semaphore = DispatchSemaphore(value: 1)
    /// Used by the thread that holds the semaphore.
    private let socket = Mutex<PortSocket?>(nil)

    /// Distinguishes this sender from a later one to the same address.
    private let number: Int

    private init(_ signature: PortSignature, number: Int) {
        self.signature = signature
        self.number = number
    }

    deinit { Self.registry.withLock { $0.remove(signature, number: number) } }

    /// Sends `bytes`, and returns whether the kernel took all of them before `date`.
    func send(_ bytes: [UInt8], before date: Date) -> Bool {
        let deadline = Deadline.now.advanced(by: date.timeRemaining)
        return RunLoop.noteWait("sending a message to a port") { send(bytes, until: deadline) }
    }

    private func send(_ bytes: [UInt8], until deadline: Deadline) -> Bool {
        let limit = DispatchTime(uptimeNanoseconds: UInt64(max(deadline.kernelNanoseconds, 0)))
        guard semaphore.wait(timeout: limit) == .success else { return false }
        defer { semaphore.signal() }
        let former = socket.withLock { $0.take() }
        if let former, former.isOpen {
            switch former.send(bytes, before: deadline) {
            case .sent:
                socket.withLock { $0 = former }
                return true
            case .failed(let sentCount):
                // If the receiver closed the connection before any byte was sent, a new connection cannot
                // duplicate the message.
                guard sentCount == 0, Deadline.now < deadline else { return false }
            }
        }
        guard let new = PortSocket(connectingTo: signature, before: deadline) else { return false }
        guard case .sent = new.send(bytes, before: deadline) else { return false }
        socket.withLock { $0 = new }
        return true
    }

    // MARK: Registry

    private struct Registry {
        struct Entry {
            weak var sender: PortSender?
            let number: Int
        }

        var entries: [PortSignature: Entry] = [:]
        var lastNumber = 0

        /// Compares numbers, not senders: loading a weak reference could make this the last owner of a
        /// sender, whose `deinit` would then lock the registry again.
        mutating func remove(_ signature: PortSignature, number: Int) {
            if entries[signature]?.number == number { entries[signature] = nil }
        }
    }

    private static let registry = Mutex(Registry())

    /// The sender to the port that has `signature`.
    static func shared(_ signature: PortSignature) -> PortSender {
        registry.withLock { registry in
            if let sender = registry.entries[signature]?.sender { return sender }
            registry.lastNumber += 1
            let sender = PortSender(signature, number: registry.lastNumber)
            registry.entries[signature] = Registry.Entry(sender: sender, number: sender.number)
            return sender
        }
    }
}

extension Date {
    /// The duration from now until this date; zero if the date has passed.
    fileprivate var timeRemaining: Duration {
        let seconds = timeIntervalSinceNow
        return .seconds(min(max(seconds, 0), Self.maximumTimeRemaining))
    }

    /// A century, in seconds: more than any send waits, and within the range of a deadline.
    private static let maximumTimeRemaining = 3.2e9
}

// MARK: - Socket

/// A connected socket that is closed when its last reference is released.
private final class PortSocket: Sendable {
    enum Outcome {
        case sent
        /// `sentCount` bytes of the message were sent before the failure.
        case failed(sentCount: Int)
    }

    private let owned: OwnedDescriptor
    private var number: CInt { owned.number }

    init?(connectingTo signature: PortSignature, before deadline: Deadline) {
        let type = signature.kind.type | CInt(SOCK_CLOEXEC.rawValue) | CInt(SOCK_NONBLOCK.rawValue)
        let number = Glibc.socket(CInt(signature.address.family.rawValue), type, signature.kind.transport)
        guard number >= 0 else { return nil }
        owned = OwnedDescriptor(number)
        guard connects(to: signature.address, before: deadline) else { return nil }
        if signature.address.port != nil {
            _ = reactor_set_option(number, CInt(IPPROTO_TCP), TCP_NODELAY, 1)
        }
    }

    private func connects(to address: SocketAddress, before deadline: Deadline) -> Bool {
        let code = unsafe address.withSockAddr { address, length in
            unsafe connect(number, address, length) == 0 ? 0 : errno
        }
        guard code != 0 else { return true }
        guard code == EINPROGRESS, wait(for: POLLOUT, until: deadline) else { return false }
        return reactor_option(number, SOL_SOCKET, SO_ERROR) == 0
    }

    /// Whether the peer has neither closed nor reset the connection. Discards data that the peer has sent.
    var isOpen: Bool {
        var buffer = [UInt8](repeating: 0, count: 256)
        do throws(Errno) {
            return try buffer.withMutableBytes { (bytes) throws(Errno) in
                try SystemCall.receive(from: number, into: &bytes) != 0
            }
        } catch { return false }
    }

    func send(_ bytes: [UInt8], before deadline: Deadline) -> Outcome {
        bytes.withBytes { bytes in
            var rest = bytes
            while !rest.isEmpty {
                do throws(Errno) {
                    let count = try SystemCall.send(rest, to: number)
                    if count > 0 {
                        rest = rest.extracting(droppingFirst: count)
                    } else {
                        try waitForRoom(until: deadline)
                    }
                } catch .interrupted {} catch {
                    return .failed(sentCount: bytes.byteCount - rest.byteCount)
                }
            }
            return .sent
        }
    }

    private func waitForRoom(until deadline: Deadline) throws(Errno) {
        guard wait(for: POLLOUT, until: deadline) else { throw .timedOut }
    }

    /// Waits until the socket is ready for `events`. Returns false if the deadline passes first.
    private func wait(for events: CInt, until deadline: Deadline) -> Bool {
        while true {
            let remaining = Deadline.now.duration(to: deadline)
            var state = pollfd(fd: number, events: Int16(events), revents: 0)
            let milliseconds = min(max(remaining / .milliseconds(1), 0).rounded(.up), 1e9)
            let count = unsafe poll(&state, 1, CInt(milliseconds))
            if count > 0 { return true }
            if count < 0, errno != EINTR { return false }
            guard Deadline.now < deadline else { return false }
        }
    }
}
