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
        let endpoint = try openEndpoint
        if try endpoint.send(bytes, to: address) { return true }
        try source.setInterest(endpoint.interest)
        return false
    }
}
