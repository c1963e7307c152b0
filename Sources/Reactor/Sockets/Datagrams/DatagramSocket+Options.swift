import CReactorLinux
import Glibc
import SystemPackage

extension DatagramSocket {
    /// The options of a datagram socket; socket(7).
    public struct Options: Sendable, Hashable {
        /// The limit of the bytes of a datagram that are delivered. The default, 65,536, suits everything that UDP carries; a
        /// lower limit takes less memory. The buffer has room for up to sixteen datagrams, in at most a megabyte, of which only
        /// the pages that datagrams have filled take memory.
        public var datagramLimit = 65_536
        /// Whether other sockets that also set this may be bound to the same address and port, such as several receivers of
        /// one multicast group (`SO_REUSEADDR`).
        public var reusesAddress = false
        /// Whether other sockets of the same user that also set this may be bound to the same address and port; the kernel
        /// distributes the senders among them (`SO_REUSEPORT`).
        public var reusesPort = false
        /// Whether sending to broadcast addresses is allowed (`SO_BROADCAST`).
        public var allowsBroadcast = false
        /// Whether an IPv6 socket excludes IPv4 (`IPV6_V6ONLY`); nil for the system's default, which mostly is no.
        public var isIPv6Only: Bool?
        /// The size of the kernel's receive buffer in bytes (`SO_RCVBUF`), a hint; nil for the kernel's choice.
        public var receiveBufferSize: Int?
        /// The size of the kernel's send buffer in bytes (`SO_SNDBUF`), a hint; nil for the kernel's choice.
        public var sendBufferSize: Int?
        /// Whether the kernel names the process that has sent a datagram: ``Metadata/credentials``
        /// (`SO_PASSCRED`). Unix-domain only.
        public var receivesCredentials = false
        /// The limit of descriptors that are received with a datagram, up to 253: ``Metadata/descriptors``. By
        /// default none are: the kernel closes what is sent, which ``Metadata/hasLostDescriptors`` reports.
        /// Unix-domain only.
        public var descriptorLimit = 0

        /// The kernel's limit for one datagram (`SCM_MAX_FD`).
        static let mostDescriptors = 253

        /// Creates options with the defaults.
        public init() {}

        /// Traps if a limit is out of range.
        func check() {
            require(datagramLimit > 0, "DatagramSocket.Options.datagramLimit must be positive.")
            require(
                0...Self.mostDescriptors ~= descriptorLimit,
                "DatagramSocket.Options.descriptorLimit must be in 0...\(Self.mostDescriptors).")
        }

        /// Throws if `socket` is not a datagram socket.
        func apply(to socket: FileDescriptor, _ family: SocketAddress.Family) throws(Errno) {
            guard try socket.option(SOL_SOCKET, SO_TYPE) == CInt(SOCK_DGRAM.rawValue) else {
                throw .protocolWrongTypeForSocket
            }
            let values: [(CInt, CInt?)] = [
                (SO_REUSEADDR, reusesAddress ? 1 : nil), (SO_REUSEPORT, reusesPort ? 1 : nil),
                (SO_BROADCAST, allowsBroadcast ? 1 : nil),
                (SO_PASSCRED, receivesCredentials && family == .unix ? 1 : nil),
                (SO_RCVBUF, receiveBufferSize.map { CInt(clamping: $0) }),
                (SO_SNDBUF, sendBufferSize.map { CInt(clamping: $0) }),
            ]
            for case (let name, let value?) in values { try socket.setOption(SOL_SOCKET, name, value) }
            if let isIPv6Only, family == .ipv6, currentTimeSource?.network == nil {
                try socket.setOption(CInt(IPPROTO_IPV6), IPV6_V6ONLY, isIPv6Only ? 1 : 0)
            }
        }
    }
}

extension FileDescriptor {
    static func datagramSocket(_ family: SocketAddress.Family) throws(Errno) -> FileDescriptor {
        if family == .ipv4 || family == .ipv6, let network = currentTimeSource?.network {
            return try network.datagramSocket(family)
        }
        return try socket(family, SOCK_DGRAM)
    }
}

// MARK: - Multicast

extension DatagramSocket {
    /// Joins a multicast group, so that datagrams sent to it are received too; ip(7), ipv6(7).
    ///
    /// - Parameters:
    ///   - group: A multicast address; its port is ignored.
    ///   - interface: The interface to receive on; ``NetworkInterface/any`` for the kernel's choice.
    /// - Throws: ``IOError`` with `Errno.invalidArgument` if the address is not a multicast address or of another family,
    ///   `Errno.addressInUse` if the group was joined already, `Errno.operationNotSupportedByDevice`, or
    ///   `Errno.badFileDescriptor` once the socket is closed.
    public func join(_ group: SocketAddress, on interface: NetworkInterface = .any) throws(IOError) {
        try changeMembership(of: group, on: interface, joins: true)
    }

    /// Leaves a multicast group.
    ///
    /// - Throws: ``IOError`` with `Errno.addressNotAvailable` if the group was not joined on that interface, or an error of
    ///   ``join(_:on:)``.
    public func leave(_ group: SocketAddress, on interface: NetworkInterface = .any) throws(IOError) {
        try changeMembership(of: group, on: interface, joins: false)
    }

    /// Sets the interface that multicast is sent by; ``NetworkInterface/any``, the default, for the kernel's choice.
    ///
    /// - Throws: ``IOError`` with `Errno.operationNotSupportedByDevice` or `Errno.addressNotAvailable` if there is no such
    ///   interface, `Errno.invalidArgument` for a Unix-domain socket, or `Errno.badFileDescriptor` once the socket is closed.
    public func setMulticastInterface(_ interface: NetworkInterface) throws(IOError) {
        try attempt(.configure, subject, label: label) { () throws(Errno) in
            let descriptor = try ipDescriptor
            try SystemCall.make {
                reactor_multicast_interface(descriptor.rawValue, CInt(family.rawValue), interface.index)
            }
        }
    }

    /// Sets whether multicast is also delivered to sockets of this machine that have joined the group. True by default.
    ///
    /// - Throws: ``IOError`` with `Errno.invalidArgument` for a Unix-domain socket, or `Errno.badFileDescriptor` once the
    ///   socket is closed.
    public func setMulticastLoop(_ isLoopedBack: Bool) throws(IOError) {
        try setMulticastOption(ipv4: IP_MULTICAST_LOOP, ipv6: IPV6_MULTICAST_LOOP, isLoopedBack ? 1 : 0)
    }

    /// Sets the time to live of multicast: 0 stays on this machine, 1, the default, on the link, and each router on the way
    /// takes one more.
    ///
    /// - Throws: As ``setMulticastLoop(_:)``.
    public func setMulticastTimeToLive(_ hops: UInt8) throws(IOError) {
        try setMulticastOption(ipv4: IP_MULTICAST_TTL, ipv6: IPV6_MULTICAST_HOPS, CInt(hops))
    }

    private func changeMembership(
        of group: SocketAddress, on interface: NetworkInterface, joins: Bool
    ) throws(IOError) {
        try attempt(joins ? .join : .leave, "\(group)", label: label) { () throws(Errno) in
            let descriptor = try ipDescriptor
            guard group.isMulticast else { throw .invalidArgument }
            try SystemCall.make {
                reactor_multicast_membership(descriptor.rawValue, joins, group.raw, interface.index)
            }
        }
    }

    private func setMulticastOption(ipv4: CInt, ipv6: CInt, _ value: CInt) throws(IOError) {
        try attempt(.configure, subject, label: label) { () throws(Errno) in
            let (level, name) = family == .ipv6 ? (IPPROTO_IPV6, ipv6) : (IPPROTO_IP, ipv4)
            try ipDescriptor.setOption(CInt(level), name, value)
        }
    }

    private var ipDescriptor: FileDescriptor {
        get throws(Errno) {
            let descriptor = try openDescriptor
            guard family == .ipv4 || family == .ipv6 else { throw .invalidArgument }
            return descriptor
        }
    }
}
