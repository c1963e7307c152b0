import Glibc
public import SystemPackage

extension DatagramSocket {
    /// Sends a datagram to `address`, without waiting; sendto(2).
    ///
    /// - Returns: Whether the kernel has taken it. If not, its buffer is full, and
    ///   ``Event/hasSpaceAvailable`` is told, once, when there is room, while the socket is in a loop.
    /// - Throws: What sendto(2) does: `Errno.messageTooLong`, `Errno.networkUnreachable`,
    ///   `Errno.permissionDenied` for a broadcast that ``Options/allowsBroadcast`` does not allow,
    ///   `Errno.badFileDescriptor` once the socket is closed. On a connected socket, also the error that came of
    ///   an earlier datagram, and then this one has not been sent.
    ///   `Errno.resourceTemporarilyUnavailable` if a Unix-domain receiver that the socket is not connected to has
    ///   no room: the kernel will not tell when it has.
    public func send(_ bytes: RawSpan, to address: SocketAddress) throws(Errno) -> Bool {
        try send(bytes, toward: address)
    }

    /// Sends a datagram to where the socket is connected, as ``send(_:to:)`` does.
    ///
    /// - Throws: `Errno.addressRequired` or `Errno.socketNotConnected` if it is not connected; and what
    ///   ``send(_:to:)`` does.
    public func send(_ bytes: RawSpan) throws(Errno) -> Bool { try send(bytes, toward: nil) }

    /// Sends a datagram to `address`, as ``send(_:to:)`` does.
    public func send(_ bytes: [UInt8], to address: SocketAddress) throws(Errno) -> Bool {
        try unsafe send(bytes.span.bytes, toward: address)
    }

    /// Sends a datagram to where the socket is connected, as ``send(_:)`` does.
    public func send(_ bytes: [UInt8]) throws(Errno) -> Bool {
        try unsafe send(bytes.span.bytes, toward: nil)
    }

    private func send(_ bytes: RawSpan, toward address: SocketAddress?) throws(Errno) -> Bool {
        let descriptor = try openDescriptor
        do throws(Errno) {
            try descriptor.send(bytes, to: address)
            return true
        } catch .resourceTemporarilyUnavailable {
            // A Unix-domain receiver that is full, and not this socket.
            guard address?.family != .unix || !descriptor.isWritable else {
                throw .resourceTemporarilyUnavailable
            }
            try awaitSpace()
            return false
        }
    }
}

extension FileDescriptor {
    /// Whether the kernel would tell of room at once: then it is not this socket that is full.
    fileprivate var isWritable: Bool { (try? SystemCall.poll(rawValue, for: POLLOUT)) ?? 0 != 0 }

    fileprivate func send(_ bytes: RawSpan, to address: SocketAddress?) throws(Errno) {
        guard let address else { return try unsafe send(bytes, nil, 0) }
        try unsafe address.withSockAddr { (raw, length) throws(Errno) in try unsafe send(bytes, raw, length) }
    }

    private func send(
        _ bytes: RawSpan, _ address: UnsafePointer<sockaddr>?, _ length: socklen_t
    ) throws(Errno) {
        let flags = CInt(MSG_DONTWAIT) | CInt(MSG_NOSIGNAL)
        _ = try unsafe bytes.withUnsafeBytes { (buffer) throws(Errno) in
            try SystemCall.make {
                unsafe sendto(rawValue, buffer.baseAddress, buffer.count, flags, address, length)
            }
        }
    }
}
