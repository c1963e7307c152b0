import Glibc
import Reactor
import SystemPackage

/// The other end of a connection, by plain system calls, which wait.
final class SocketPeer: Sendable {
    let descriptor: FileDescriptor
    private let isClosed = Shared(false)

    init(_ number: CInt) {
        descriptor = FileDescriptor(rawValue: number)
        // What never comes fails a test, and does not hold it up for good.
        var patience = timeval(tv_sec: 300, tv_usec: 0)
        setsockopt(number, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close() }

    var number: CInt { descriptor.rawValue }

    /// Sends all of `bytes`; false if they cannot be.
    @discardableResult
    func send(_ bytes: [UInt8], flags: CInt = 0) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let flags = flags | CInt(MSG_NOSIGNAL)
            let count = rest.withUnsafeBytes { Glibc.send(number, $0.baseAddress, $0.count, flags) }
            if count <= 0 { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    /// What comes next, of `count` bytes at most; nothing at the end, nil if there is a fault.
    func receive(upTo count: Int) -> [UInt8]? {
        var result = -1
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            result = recv(number, buffer.baseAddress, count, 0)
            filled = max(result, 0)
        }
        return result < 0 ? nil : bytes
    }

    /// What is there already, of `count` bytes at most.
    func receiveNow(upTo count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            filled = max(recv(number, buffer.baseAddress, count, CInt(MSG_DONTWAIT)), 0)
        }
    }

    /// The next `count` bytes; fewer if the end comes first.
    func receive(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, let more = receive(upTo: count - bytes.count), !more.isEmpty {
            bytes += more
        }
        return bytes
    }

    /// Everything up to the end, `size` bytes at a time; nil if it is not the end that comes.
    func receiveToEnd(by size: Int = 65_536) -> [UInt8]? {
        var bytes: [UInt8] = []
        while let more = receive(upTo: size) {
            if more.isEmpty { return bytes }
            bytes += more
        }
        return nil
    }

    /// Says that nothing more will come.
    func shutDown() { Glibc.shutdown(number, CInt(SHUT_WR)) }

    func close() {
        let wasClosed = isClosed.update { isClosed in
            defer { isClosed = true }
            return isClosed
        }
        if !wasClosed { try? descriptor.close() }
    }

    /// Ends the connection with what is left undone: the other end has a fault.
    func reset() {
        var abrupt = linger(l_onoff: 1, l_linger: 0)
        setsockopt(number, SOL_SOCKET, SO_LINGER, &abrupt, socklen_t(MemoryLayout<linger>.size))
        close()
    }

    /// Has the kernel keep little for this socket, so that it is soon full.
    func narrow() { Self.narrow(number) }

    static func narrow(_ number: CInt) {
        var size: CInt = 4096
        for option in [SO_SNDBUF, SO_RCVBUF] {
            setsockopt(number, SOL_SOCKET, option, &size, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    /// Two ends of a Unix-domain connection.
    static func pair() throws -> (SocketPeer, other: FileDescriptor) {
        var numbers: [CInt] = [0, 0]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        try SystemCall.make { socketpair(AF_UNIX, type, 0, &numbers) }
        return (SocketPeer(numbers[0]), FileDescriptor(rawValue: numbers[1]))
    }
}
