import CReactorLinux
import Glibc
import Reactor

/// A socket that is connected, and closed when it is let go of.
final class PortSocket {
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
