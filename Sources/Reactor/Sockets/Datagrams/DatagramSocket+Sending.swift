import CReactorLinux
import Glibc
public import SystemPackage

extension DatagramSocket {
    /// Sends a datagram to `address` without blocking; sendto(2).
    ///
    /// - Returns: Whether the kernel has accepted it. If its buffer is full, it has not, and ``Event/hasSpaceAvailable`` is
    ///   delivered once there is room, while the socket is in a loop.
    /// - Throws: An error of sendto(2): `Errno.messageTooLong`, `Errno.networkUnreachable`, `Errno.permissionDenied` for a
    ///   broadcast without ``Options/allowsBroadcast``, `Errno.badFileDescriptor` once the socket is closed. On a connected
    ///   socket also the error that an earlier datagram has caused; then this one was not sent.
    ///   `Errno.resourceTemporarilyUnavailable` if a Unix-domain receiver that the socket is not connected to has no room: the
    ///   kernel does not report when it has.
    public func send(_ bytes: RawSpan, to address: SocketAddress) throws(Errno) -> Bool {
        try send(bytes, toward: address)
    }

    /// Sends a datagram to the connected address, like ``send(_:to:)-([UInt8],_)``.
    ///
    /// - Throws: `Errno.addressRequired` or `Errno.socketNotConnected` if the socket is not connected, or an error of
    ///   ``send(_:to:)-([UInt8],_)``.
    public func send(_ bytes: RawSpan) throws(Errno) -> Bool { try send(bytes, toward: nil) }

    /// Sends a datagram to `address`, like ``send(_:to:)-([UInt8],_)``.
    public func send(_ bytes: [UInt8], to address: SocketAddress) throws(Errno) -> Bool {
        try send(bytes, to: address, descriptors: [])
    }

    /// Sends a datagram to the connected address, like ``send(_:)-([UInt8])``.
    public func send(_ bytes: [UInt8]) throws(Errno) -> Bool { try send(bytes, descriptors: []) }

    /// Sends a text's UTF-8 to `address`, like ``send(_:to:)-([UInt8],_)``.
    public func send(_ text: String, to address: SocketAddress) throws(Errno) -> Bool {
        try send(Array(text.utf8), to: address)
    }

    /// Sends a text's UTF-8 to the connected address, like ``send(_:)-([UInt8])``.
    public func send(_ text: String) throws(Errno) -> Bool { try send(Array(text.utf8)) }

    /// Sends a datagram with descriptors over a Unix-domain socket, like ``send(_:to:)-([UInt8],_)``.
    ///
    /// The receiver gets duplicates, if its ``Options/descriptorLimit`` allows, and the kernel closes those beyond: see
    /// ``Metadata/hasLostDescriptors``.
    ///
    /// - Parameters:
    ///   - bytes: The datagram.
    ///   - address: The receiver; nil for the connected address.
    ///   - descriptors: Open descriptors, which stay the caller's.
    /// - Throws: Also `Errno.invalidArgument` for a socket of another family or more than 253 descriptors, and
    ///   `Errno(rawValue: ETOOMANYREFS)` if too many are in flight.
    public func send(
        _ bytes: [UInt8], to address: SocketAddress? = nil, descriptors: [FileDescriptor]
    ) throws(Errno) -> Bool {
        guard descriptors.isEmpty || family == .unix else { throw .invalidArgument }
        return try bytes.withBytes { (bytes) throws(Errno) in
            try send(bytes, toward: address, descriptors.map(\.rawValue))
        }
    }

    private func send(
        _ bytes: RawSpan, toward address: SocketAddress?, _ descriptors: [CInt] = []
    ) throws(Errno) -> Bool {
        let number = try descriptor.rawValue
        let raw = address?.raw ?? reactor_address()
        do throws(Errno) {
            try SystemCall.make {
                bytes.withAddress { start, count in
                    if descriptors.isEmpty { return unsafe reactor_send_datagram(number, start, count, raw) }
                    return unsafe reactor_send_descriptors(
                        number, start, count, raw, descriptors, descriptors.count)
                }
            }
            return true
        } catch .resourceTemporarilyUnavailable {
            // If this socket is writable, it is the Unix-domain receiver that is full.
            if isWritable, address?.family == .unix { throw .resourceTemporarilyUnavailable }
            try awaitSpace()
            return false
        }
    }

    /// Whether the kernel has room for a datagram.
    var isWritable: Bool { (try? SystemCall.poll(number, for: POLLOUT)) ?? 0 != 0 }
}
