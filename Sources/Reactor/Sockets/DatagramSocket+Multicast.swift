import CReactorLinux
import Glibc
public import SystemPackage

extension DatagramSocket {
    /// Receives what is sent to `group` too, besides what is sent to the socket's own address; ip(7), ipv6(7).
    ///
    /// - Parameters:
    ///   - group: A multicast address; its port does not count.
    ///   - interface: Where to listen; ``NetworkInterface/any`` leaves that to the routes.
    /// - Throws: `Errno.invalidArgument` for an address that is no group's, or of another family;
    ///   `Errno.addressInUse` for one that has been joined; `Errno.operationNotSupportedByDevice`; `Errno.badFileDescriptor` once the
    ///   socket is closed.
    public func join(_ group: SocketAddress, on interface: NetworkInterface = .any) throws(Errno) {
        try changeMembership(of: group, on: interface, joins: true)
    }

    /// Receives what is sent to `group` no longer.
    ///
    /// - Throws: `Errno.addressNotAvailable` for a group that has not been joined on that interface; and what
    ///   ``join(_:on:)`` does.
    public func leave(_ group: SocketAddress, on interface: NetworkInterface = .any) throws(Errno) {
        try changeMembership(of: group, on: interface, joins: false)
    }

    /// Sends to groups by way of `interface`; ``NetworkInterface/any``, as it is at first, leaves that to the
    /// routes.
    ///
    /// - Throws: `Errno.operationNotSupportedByDevice` or `Errno.addressNotAvailable` for an interface that there is not;
    ///   `Errno.invalidArgument` for a Unix-domain socket; `Errno.badFileDescriptor` once the socket is closed.
    public func setMulticastInterface(_ interface: NetworkInterface) throws(Errno) {
        let descriptor = try ipDescriptor
        try SystemCall.make {
            reactor_multicast_interface(descriptor.rawValue, CInt(family.rawValue), interface.index)
        }
    }

    /// Whether what is sent to groups comes back to sockets of this machine that have joined them: at first it
    /// does.
    ///
    /// - Throws: `Errno.invalidArgument` for a Unix-domain socket; `Errno.badFileDescriptor` once the socket is
    ///   closed.
    public func setMulticastLoop(_ isLoopedBack: Bool) throws(Errno) {
        try setMulticastOption(ipv4: IP_MULTICAST_LOOP, ipv6: IPV6_MULTICAST_LOOP, isLoopedBack ? 1 : 0)
    }

    /// How many routers may pass on what is sent to groups, plus one: at first 1, which stays on the link. Zero
    /// stays on this machine.
    ///
    /// - Throws: As ``setMulticastLoop(_:)``.
    public func setMulticastTimeToLive(_ hops: UInt8) throws(Errno) {
        try setMulticastOption(ipv4: IP_MULTICAST_TTL, ipv6: IPV6_MULTICAST_HOPS, CInt(hops))
    }

    private func changeMembership(
        of group: SocketAddress, on interface: NetworkInterface, joins: Bool
    ) throws(Errno) {
        let descriptor = try ipDescriptor
        guard group.isMulticast else { throw .invalidArgument }
        try SystemCall.make {
            unsafe group.withSockAddr { raw, length in
                unsafe reactor_multicast_membership(
                    descriptor.rawValue, joins, raw, Int(length), interface.index)
            }
        }
    }

    private func setMulticastOption(ipv4: CInt, ipv6: CInt, _ value: CInt) throws(Errno) {
        let descriptor = try ipDescriptor
        if family == .ipv6 {
            try descriptor.setOption(CInt(IPPROTO_IPV6), ipv6, value)
        } else {
            try descriptor.setOption(CInt(IPPROTO_IP), ipv4, value)
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
