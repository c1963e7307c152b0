import CReactorLinux
import Dispatch
import Foundation
import Glibc
import Reactor

/// The connection that all remote ports of one address send over. It is closed with the last of them.
///
/// Sending waits, on the caller's thread: there is one sender at a time, and the others wait for their turn.
final class PortLink: @unchecked Sendable {
    // `@unchecked Sendable` is right: `socket` is touched by the sender alone that holds the turn.

    private let signature: PortSignature
    /// A lock that can be waited for to a deadline. Foundation's traps on distant dates.
    private let turn = DispatchSemaphore(value: 1)
    private var socket: OwnedSocket?

    /// Tells this link from a later one to the same address.
    private let number: Int

    private init(_ signature: PortSignature, number: Int) {
        self.signature = signature
        self.number = number
    }

    deinit { Self.known.withLock { $0.forget(signature, number: number) } }

    /// Sends `bytes`, or says that it could not before the date.
    func send(_ bytes: [UInt8], before date: Date) -> Bool {
        let deadline = Deadline.now.advanced(by: date.patience)
        let limit = DispatchTime(uptimeNanoseconds: UInt64(deadline.uptimeNanoseconds))
        guard turn.wait(timeout: limit) == .success else { return false }
        defer { turn.signal() }
        dropDeadSocket()
        if let socket {
            switch socket.send(bytes, before: deadline) {
            case .sent: return true
            case .failed(let sentCount):
                self.socket = nil
                // The receiver has closed the connection just now, and knows nothing of this message.
                guard sentCount == 0, Deadline.now < deadline else { return false }
            }
        }
        guard let socket = OwnedSocket(connectingTo: signature, before: deadline) else { return false }
        guard case .sent = socket.send(bytes, before: deadline) else { return false }
        self.socket = socket
        return true
    }

    private func dropDeadSocket() {
        if let socket, !socket.isAlive { self.socket = nil }
    }

    // MARK: The links there are

    private struct Known {
        struct Entry {
            weak var link: PortLink?
            let number: Int
        }

        var entries: [PortSignature: Entry] = [:]
        var lastNumber = 0

        /// Looks at numbers alone: to look at a link could be to hold the last reference, with the lock held.
        mutating func forget(_ signature: PortSignature, number: Int) {
            if entries[signature]?.number == number { entries[signature] = nil }
        }
    }

    private static let known = Mutex(Known())

    /// The link to where a port listens.
    static func shared(_ signature: PortSignature) -> PortLink {
        known.withLock { known in
            if let link = known.entries[signature]?.link { return link }
            known.lastNumber += 1
            let link = PortLink(signature, number: known.lastNumber)
            known.entries[signature] = Known.Entry(link: link, number: link.number)
            return link
        }
    }
}

extension Date {
    /// How long it is until then; never less than nothing.
    fileprivate var patience: Duration {
        let seconds = timeIntervalSinceNow
        return .seconds(min(max(seconds, 0), Self.longestPatience))
    }

    /// A century, in seconds: more than a clock of nanoseconds needs to hold.
    private static let longestPatience = 3.2e9
}

/// A socket that is connected, and closed when it is let go of.
private final class OwnedSocket {
    enum Outcome {
        case sent
        /// So many bytes of the message have gone.
        case failed(sentCount: Int)
    }

    private let number: CInt

    init?(connectingTo signature: PortSignature, before deadline: Deadline) {
        let type = signature.kind.type | CInt(SOCK_CLOEXEC.rawValue) | CInt(SOCK_NONBLOCK.rawValue)
        number = Glibc.socket(CInt(signature.address.family.rawValue), type, signature.kind.transport)
        guard number >= 0, isConnected(to: signature.address, before: deadline) else { return nil }
        var yes: CInt = 1
        if signature.address.port != nil {
            _ = unsafe setsockopt(
                number, CInt(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    deinit {
        if number >= 0 { _ = close(number) }
    }

    private func isConnected(to address: SocketAddress, before deadline: Deadline) -> Bool {
        let code = unsafe address.withSockAddr { address, length in
            unsafe connect(number, address, length) == 0 ? 0 : errno
        }
        guard code != 0 else { return true }
        guard code == EINPROGRESS, wait(for: POLLOUT, until: deadline) else { return false }
        var fault: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        return unsafe getsockopt(number, SOL_SOCKET, SO_ERROR, &fault, &size) == 0 && fault == 0
    }

    /// Whether the peer has neither closed the connection nor reset it. What it sends here is passed over.
    var isAlive: Bool {
        unsafe withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) { buffer in
            guard let start = buffer.baseAddress else { return false }
            let count = unsafe reactor_receive(number, start, buffer.count)
            return count > 0 || count == -Int(EAGAIN)
        }
    }

    func send(_ bytes: [UInt8], before deadline: Deadline) -> Outcome {
        unsafe bytes.withUnsafeBytes { bytes in
            var sentCount = 0
            while sentCount < bytes.count, let start = bytes.baseAddress {
                let count = unsafe reactor_send(number, start + sentCount, bytes.count - sentCount)
                if count > 0 {
                    sentCount += count
                } else if count == -Int(EAGAIN) {
                    guard wait(for: POLLOUT, until: deadline) else { return .failed(sentCount: sentCount) }
                } else if count != -Int(EINTR) {
                    return .failed(sentCount: sentCount)
                }
            }
            return .sent
        }
    }

    /// Waits until the socket is ready, or the deadline has passed.
    private func wait(for events: CInt, until deadline: Deadline) -> Bool {
        while true {
            let left = Deadline.now.duration(to: deadline)
            var state = pollfd(fd: number, events: Int16(events), revents: 0)
            let milliseconds = min(max(left / .milliseconds(1), 0).rounded(.up), 1e9)
            let count = unsafe poll(&state, 1, CInt(milliseconds))
            if count > 0 { return true }
            if count < 0, errno != EINTR { return false }
            guard Deadline.now < deadline else { return false }
        }
    }
}
