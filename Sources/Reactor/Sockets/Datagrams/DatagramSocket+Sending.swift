import CReactorLinux
import Glibc
public import SystemPackage

extension DatagramSocket {
    /// Sends a datagram without blocking; sendto(2).
    ///
    /// - Parameters:
    ///   - bytes: The datagram.
    ///   - address: The receiver; nil for the address that the socket is connected to.
    ///   - descriptors: Open descriptors to send along over a Unix-domain socket, which stay the caller's. The receiver gets
    ///     duplicates, if its ``Options/descriptorLimit`` allows, and the kernel closes those beyond: see
    ///     ``Metadata/hasLostDescriptors``.
    /// - Returns: Whether the kernel has accepted it. If its buffer is full, it has not, and ``Event/hasSpaceAvailable`` is
    ///   delivered once there is room, while the socket is in a loop.
    /// - Throws: ``IOError`` with an error of sendto(2): `Errno.messageTooLong`, `Errno.networkUnreachable`,
    ///   `Errno.permissionDenied` for a broadcast without ``Options/allowsBroadcast``, `Errno.badFileDescriptor` once the
    ///   socket is closed. On a connected socket also the error that an earlier datagram has caused; then this one was not
    ///   sent. Without an address `Errno.addressRequired` or `Errno.socketNotConnected` if the socket is not connected.
    ///   `Errno.resourceTemporarilyUnavailable` if a Unix-domain receiver that the socket is not connected to has no room: the
    ///   kernel does not report when it has. With descriptors `Errno.invalidArgument` for a socket of another family or more
    ///   than 253 of them, and `Errno(rawValue: ETOOMANYREFS)` if too many are in flight.
    public func send(
        _ bytes: RawSpan, to address: SocketAddress? = nil, descriptors: [FileDescriptor] = []
    ) throws(IOError) -> Bool {
        do throws(Errno) {
            return try transmit(bytes, to: address, descriptors)
        } catch {
            throw IOError(.send, address.map { "\($0)" } ?? subject, error, label: label)
        }
    }

    /// Sends a datagram, like ``send(_:to:descriptors:)-(RawSpan,_,_)``.
    public func send(
        _ bytes: [UInt8], to address: SocketAddress? = nil, descriptors: [FileDescriptor] = []
    ) throws(IOError) -> Bool {
        try bytes.withBytes { (bytes) throws(IOError) in
            try send(bytes, to: address, descriptors: descriptors)
        }
    }

    /// Sends a text's UTF-8, like ``send(_:to:descriptors:)-(RawSpan,_,_)``.
    public func send(_ text: String, to address: SocketAddress? = nil) throws(IOError) -> Bool {
        try send(Array(text.utf8), to: address)
    }

    func transmit(
        _ bytes: RawSpan, to address: SocketAddress?, _ descriptors: [FileDescriptor]
    ) throws(Errno) -> Bool {
        let number = try openDescriptor.rawValue
        guard descriptors.isEmpty || family == .unix else { throw .invalidArgument }
        if let network = simulation {
            try network.send(bytes, from: FileDescriptor(rawValue: number), to: address)
            return true
        }
        let numbers = descriptors.map(\.rawValue)
        let raw = address?.raw ?? reactor_address()
        do throws(Errno) {
            try SystemCall.make {
                bytes.withAddress { start, count in
                    if numbers.isEmpty { return unsafe reactor_send_datagram(number, start, count, raw) }
                    return unsafe reactor_send_descriptors(
                        number, start, count, raw, numbers, numbers.count)
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
