import CReactorLinux
package import Glibc
package import SystemPackage

extension SharedDescriptor {
    /// Sends as many bytes as the socket has room for; returns 0 if it has none.
    func send(_ bytes: RawSpan) throws(Errno) -> Int {
        try use { (number) throws(Errno) in try SystemCall.send(bytes, to: number) }
    }

    /// Receives pending bytes: 0 at the end, nil if none are pending.
    func receive(into buffer: inout MutableRawSpan) throws(Errno) -> Int? {
        try use { (number) throws(Errno) in try SystemCall.receive(from: number, into: &buffer) }
    }

    enum DiscardedInput {
        case open
        case atEnd
        case failed(Errno)
    }

    /// Reads and drops pending input, up to a megabyte: other items of the loop get their turn.
    func discardInput() -> DiscardedInput {
        var memory = [UInt8](repeating: 0, count: 16_384)
        return memory.withMutableBytes { buffer in
            do throws(Errno) {
                for _ in 0..<64 {
                    guard let count = try receive(into: &buffer) else { return .open }
                    if count == 0 { return .atEnd }
                }
                return .open
            } catch {
                return .failed(error)
            }
        }
    }

    /// Shuts the socket down in one direction or in both (shutdown(2)).
    func shutDown(_ direction: Int = SHUT_WR) throws(Errno) {
        do throws(Errno) {
            _ = try use { (number) throws(Errno) in
                if direction == SHUT_WR { currentTimeSource?.network?.willEndOutput(of: number) }
                try SystemCall.make { Glibc.shutdown(number, CInt(direction)) }
            }
        } catch {
            throw reason(for: error)
        }
    }

    /// Ends the connection at once, for all duplicates of the descriptor; false if it is closed.
    @discardableResult
    func reset() -> Bool {
        let hasReset: Void? = try? use { (number) throws(Errno) in
            currentTimeSource?.network?.willReset(number)
            reactor_reset(number)
        }
        return hasReset != nil
    }

    /// The peer's address (getpeername(2)).
    var peer: SocketAddress {
        get throws(Errno) {
            do throws(Errno) { return try SocketAddress.peer(of: FileDescriptor(rawValue: number)) } catch {
                throw reason(for: error)
            }
        }
    }

    /// Why a call has failed: a socket that the peer has reset is not connected any more, and its pending error tells
    /// why.
    private func reason(for error: Errno) -> Errno {
        error == .socketNotConnected ? socketError ?? error : error
    }
}

// MARK: - The socket's state

extension SharedDescriptor {
    /// The pending error (`SO_ERROR`, socket(7)). Getting it clears it.
    var socketError: Errno? {
        let code = option(SO_ERROR) ?? 0
        return code == 0 ? nil : Errno(rawValue: code)
    }

    /// Whether received bytes are unread (`FIONREAD`, tcp(7)).
    var hasUnreadBytes: Bool { unreadByteCount > 0 }

    var unreadByteCount: Int { queuedByteCount(UInt(FIONREAD)) }

    /// The number of sent bytes that the peer has not acknowledged (`SIOCOUTQ`, tcp(7)). 0 for Unix-domain sockets, whose
    /// bytes are in the peer's queue as soon as they are sent.
    var unacknowledgedByteCount: Int {
        let count = queuedByteCount(UInt(TIOCOUTQ))
        return count > 0 && mayBeReset ? count : 0
    }

    /// Whether the kernel may reset the connection: it may reset all but Unix-domain ones.
    var mayBeReset: Bool { option(SO_DOMAIN).map { $0 != AF_UNIX } ?? false }

    /// Whether the connection is over in both directions; also if another call has taken the error of a reset.
    var isDisconnected: Bool {
        let state = try? use { (number) throws(Errno) in
            // The state of the connection is the first byte of the answer.
            try FileDescriptor(rawValue: number).option(CInt(IPPROTO_TCP), TCP_INFO) & 0xff
        }
        return state == Self.closedState
    }

    /// TCP_CLOSE of tcp(7).
    private static let closedState: CInt = 7

    /// Whether bytes were sent to the peer.
    var hasSent: Bool { (try? use { (number) throws(Errno) in reactor_has_sent(number) }) ?? false }

    private func option(_ name: CInt) -> CInt? {
        try? use { (number) throws(Errno) in try FileDescriptor(rawValue: number).option(SOL_SOCKET, name) }
    }

    private func queuedByteCount(_ request: UInt) -> Int {
        let count = try? use { (number) throws(Errno) in
            try SystemCall.make { reactor_queued_bytes(number, request) }
        }
        return Int(count ?? 0)
    }
}

// MARK: - Calls

extension FileDescriptor {
    /// Creates a non-blocking socket that is closed on exec (socket(2)).
    package static func socket(
        _ family: SocketAddress.Family, _ type: __socket_type
    ) throws(Errno) -> FileDescriptor {
        let type = CInt(type.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        return FileDescriptor(rawValue: try SystemCall.make { Glibc.socket(CInt(family.rawValue), type, 0) })
    }

    package func bind(to address: SocketAddress) throws(Errno) {
        try SystemCall.make { reactor_bind(rawValue, address.raw) }
    }

    package func connect(to address: SocketAddress) throws(Errno) {
        try SystemCall.make { reactor_connect(rawValue, address.raw) }
    }

    /// Sends a datagram (sendto(2)).
    package func send(_ bytes: RawSpan, to address: SocketAddress) throws(Errno) {
        try SystemCall.make {
            bytes.withAddress { unsafe reactor_send_datagram(rawValue, $0, $1, address.raw) }
        }
    }

    /// The value of a numeric option (getsockopt(2)).
    func option(_ level: CInt, _ name: CInt) throws(Errno) -> CInt {
        try SystemCall.make { reactor_option(rawValue, level, name) }
    }

    /// Sets a numeric option (setsockopt(2)).
    func setOption(_ level: CInt, _ name: CInt, _ value: CInt) throws(Errno) {
        try SystemCall.make { reactor_set_option(rawValue, level, name, value) }
    }
}

/// The process at the other end of a Unix-domain socket, as the kernel knows it; unix(7).
public struct PeerCredentials: Sendable, Hashable {
    /// The process's number; 0 if it has none in this process's PID namespace. It may have ended since, and another may
    /// have the number.
    public let processIdentifier: Int32
    /// The effective user.
    public let userIdentifier: UInt32
    /// The effective group.
    public let groupIdentifier: UInt32

    /// Nil for none.
    init?(_ raw: reactor_credentials) {
        guard raw.user != .max else { return nil }
        (processIdentifier, userIdentifier, groupIdentifier) = (raw.process, raw.user, raw.group)
    }
}
