import CReactorLinux
import Glibc
import SystemPackage

extension DescriptorHolder {
    /// How many bytes the socket takes now (send(2)); none if it has no room.
    func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int {
        let count = try use { (number) throws(Errno) in
            unsafe reactor_send(number, bytes.baseAddress, bytes.count)
        }
        return try Self.count(count) ?? 0
    }

    /// How many bytes the socket has (recv(2)), 0 at its end; nil if there are none now.
    func receive(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Int? {
        let count = try use { (number) throws(Errno) in
            unsafe reactor_receive(number, buffer.baseAddress, buffer.count)
        }
        return try Self.count(count)
    }

    /// What a call has moved that returns a negative error number; nil if it would have had to wait.
    @inline(__always)
    private static func count(_ result: Int) throws(Errno) -> Int? {
        if result >= 0 { return result }
        let error = Errno(rawValue: CInt(-result))
        if error == .resourceTemporarilyUnavailable { return nil }
        throw error
    }

    /// What reading and dropping has come to.
    enum DiscardedInput {
        case open
        case atEnd
        case failed(Errno)
    }

    /// Reads and drops what has come, but no more than a pass of the loop should take.
    func discardInput() -> DiscardedInput {
        unsafe withUnsafeTemporaryAllocation(byteCount: 16_384, alignment: 1) { buffer in
            do throws(Errno) {
                for _ in 0..<64 {
                    guard let count = try unsafe receive(into: buffer) else { return .open }
                    if count == 0 { return .atEnd }
                }
                return .open
            } catch {
                return .failed(error)
            }
        }
    }

    /// Ends the sending of bytes, or both directions (shutdown(2)).
    func shutDown(_ direction: Int = SHUT_WR) throws(Errno) {
        _ = try use { (number) throws(Errno) in
            try SystemCall.make { Glibc.shutdown(number, CInt(direction)) }
        }
    }
}

// MARK: - What the kernel says of a socket

extension DescriptorHolder {
    /// The socket's error that no call has returned yet (`SO_ERROR`, socket(7)), which is cleared by asking.
    var socketError: Errno? {
        let code = option(SO_ERROR) ?? 0
        return code == 0 ? nil : Errno(rawValue: code)
    }

    /// Whether the kernel keeps bytes that have come (`FIONREAD`, tcp(7)).
    var hasUnreadBytes: Bool { byteCount(UInt(FIONREAD)) > 0 }

    /// How many bytes the peer has not acknowledged (`SIOCOUTQ`, tcp(7)). None for other sockets than TCP's, whose bytes
    /// are the peer's as soon as they are sent.
    var unsentByteCount: Int {
        let count = byteCount(UInt(TIOCOUTQ))
        return count > 0 && isTCP ? count : 0
    }

    /// Whether the kernel may reset the connection, as it does with all but Unix-domain ones.
    var isTCP: Bool { option(SO_DOMAIN).map { $0 != AF_UNIX } ?? false }

    /// Whether anything was sent to the peer.
    var hasSent: Bool { (try? use { (number) throws(Errno) in reactor_has_sent(number) }) ?? false }

    private func option(_ name: CInt) -> CInt? {
        try? use { (number) throws(Errno) in try FileDescriptor(rawValue: number).option(SOL_SOCKET, name) }
    }

    private func byteCount(_ request: UInt) -> Int {
        let count = try? use { (number) throws(Errno) in
            var count: CInt = 0
            try SystemCall.make { unsafe ioctl(number, request, &count) }
            return Int(count)
        }
        return count ?? 0
    }
}
