package import Glibc
package import Reactor
package import SystemPackage

/// A socket that is used with blocking system calls: mostly the peer of a connection.
package final class SocketPeer: Sendable {
    package let descriptor: FileDescriptor
    private let isClosed = Shared(false)

    package init(_ number: CInt) {
        descriptor = FileDescriptor(rawValue: number)
        setPatience(Patience.seconds)
    }

    /// Lets a call that blocks fail after a number of seconds, so that a missing byte fails the test; 0 for never.
    func setPatience(_ seconds: Int) {
        var patience = timeval(tv_sec: seconds, tv_usec: 0)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(number, SOL_SOCKET, option, &patience, socklen_t(MemoryLayout<timeval>.size))
        }
    }

    /// A socket that has no address yet.
    package convenience init(
        family: CInt, _ type: __socket_type = SOCK_STREAM, isBlocking: Bool = true
    ) throws(Errno) {
        let flags = SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        self.init(try SystemCall.make { socket(family, CInt(type.rawValue | flags), 0) })
    }

    /// A client. The kernel connects it if there is room in the backlog.
    package convenience init(connectedTo address: SocketAddress, isBlocking: Bool = true) throws(Errno) {
        try self.init(family: CInt(address.family.rawValue), isBlocking: isBlocking)
        try connect(to: address)
    }

    /// A server, which accepts connections in ``accept()`` only.
    package convenience init(listeningAt address: SocketAddress, backlog: CInt = 64) throws(Errno) {
        try self.init(family: CInt(address.family.rawValue))
        try bind(to: address)
        try listen(backlog)
    }

    deinit { close() }

    package func bind(to address: SocketAddress) throws(Errno) {
        try SystemCall.make { address.withSockAddr { Glibc.bind(number, $0, $1) } }
    }

    package func listen(_ backlog: CInt = 64) throws(Errno) {
        try SystemCall.make { Glibc.listen(number, backlog) }
    }

    package func connect(to address: SocketAddress) throws(Errno) {
        let code = address.withSockAddr { Glibc.connect(number, $0, $1) }
        guard code == 0 else { throw Errno(rawValue: errno) }
    }

    /// Waits for the next connection. Closes this socket if that fails, so that clients are refused and do not wait.
    package func accept() throws(Errno) -> SocketPeer {
        if isClosed.value { throw .badFileDescriptor }
        do throws(Errno) {
            let connection = try SystemCall.make { Glibc.accept(number, nil, nil) }
            // A child process that inherited it would keep the connection open.
            _ = fcntl(connection, F_SETFD, FD_CLOEXEC)
            return SocketPeer(connection)
        } catch {
            close()
            throw error
        }
    }

    /// Makes ``accept()`` on another thread fail.
    func stopAccepting() {
        isClosed.update { [number] isClosed in
            if !isClosed { Glibc.shutdown(number, CInt(SHUT_RDWR)) }
        }
    }

    package var localAddress: SocketAddress {
        get throws {
            var (storage, length) = (sockaddr_storage(), socklen_t(MemoryLayout<sockaddr_storage>.size))
            return try withUnsafeMutablePointer(to: &storage) {
                try $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                    try SystemCall.make { getsockname(number, address, &length) }
                    return SocketAddress(address, length: length)!
                }
            }
        }
    }

    package var number: CInt { descriptor.rawValue }

    /// Sends all of `bytes`; false if that fails.
    @discardableResult
    package func send(_ bytes: [UInt8], flags: CInt = 0) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let flags = flags | CInt(MSG_NOSIGNAL)
            let count = rest.withUnsafeBytes { Glibc.send(number, $0.baseAddress, $0.count, flags) }
            if count <= 0 { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    /// The next bytes, up to `count`; none at the end, nil after an error.
    package func receive(upTo count: Int) -> [UInt8]? {
        var result = -1
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            result = recv(number, buffer.baseAddress, count, 0)
            filled = max(result, 0)
        }
        return result < 0 ? nil : bytes
    }

    /// The available bytes, up to `count`.
    package func receiveNow(upTo count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            filled = max(recv(number, buffer.baseAddress, count, CInt(MSG_DONTWAIT)), 0)
        }
    }

    /// The next `count` bytes; fewer if the end comes first.
    package func receive(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, let more = receive(upTo: count - bytes.count), !more.isEmpty {
            bytes += more
        }
        return bytes
    }

    /// Everything up to the end, `size` bytes at a time; nil after an error.
    package func receiveToEnd(by size: Int = 65_536) -> [UInt8]? {
        var bytes: [UInt8] = []
        while let more = receive(upTo: size) {
            if more.isEmpty { return bytes }
            bytes += more
        }
        return nil
    }

    /// Ends the output.
    package func shutDown() { Glibc.shutdown(number, CInt(SHUT_WR)) }

    package func close() {
        let wasClosed = isClosed.update { isClosed in
            defer { isClosed = true }
            return isClosed
        }
        if !wasClosed { try? descriptor.close() }
    }

    /// Resets the connection.
    package func reset() {
        var abrupt = linger(l_onoff: 1, l_linger: 0)
        setsockopt(number, SOL_SOCKET, SO_LINGER, &abrupt, socklen_t(MemoryLayout<linger>.size))
        close()
    }

    /// Makes the kernel's buffers of this socket small.
    package func narrow() { Self.narrow(number) }

    package static func narrow(_ number: CInt) {
        var size: CInt = 4096
        for option in [SO_SNDBUF, SO_RCVBUF] {
            setsockopt(number, SOL_SOCKET, option, &size, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    /// Two ends of a Unix-domain connection.
    package static func pair() throws -> (SocketPeer, other: FileDescriptor) {
        let (number, other) = try socketPair()
        return (SocketPeer(number), FileDescriptor(rawValue: other))
    }
}

/// Two connected Unix-domain sockets.
package func socketPair() throws -> (CInt, CInt) {
    var numbers: [CInt] = [0, 0]
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    try SystemCall.make { socketpair(AF_UNIX, type, 0, &numbers) }
    return (numbers[0], numbers[1])
}
