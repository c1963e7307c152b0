import Glibc
import Reactor
import SystemPackage

/// A network of the calling thread, and of the threads that it starts afterwards, with a loopback interface only
/// (network_namespaces(7)).
enum OwnNetwork {
    /// Whether this process may have one.
    static let isAllowed = (try? onAThread { try enter() }) != nil

    /// Moves the calling thread to a new network.
    static func enter() throws {
        // Swift's Glibc lacks it.
        typealias Unshare = @convention(c) (CInt) -> CInt
        let unshare = unsafeBitCast(dlsym(nil, "unshare"), to: Unshare.self)
        let newNetwork: CInt = 0x4000_0000  // CLONE_NEWNET
        try SystemCall.make { unshare(newNetwork) }
        try set(isUp: true)
    }

    /// Brings the loopback interface up or down. While it is down, packets are lost.
    static func set(isUp: Bool) throws {
        let descriptor = try SystemCall.make { socket(AF_INET, CInt(SOCK_DGRAM.rawValue), 0) }
        defer { close(descriptor) }
        var request = ifreq()
        withUnsafeMutableBytes(of: &request.ifr_ifrn) { $0.copyBytes(from: Array("lo".utf8)) }
        request.ifr_ifru.ifru_flags = isUp ? Int16(IFF_UP) : 0
        try SystemCall.make { ioctl(descriptor, UInt(SIOCSIFFLAGS), &request) }
    }

    /// Limits the ports that the kernel chooses from.
    static func choosePorts(_ first: UInt16, _ last: UInt16) throws {
        let path = "/proc/sys/net/ipv4/ip_local_port_range"
        let file = try FileDescriptor.open(path, .writeOnly)
        try file.closeAfter { _ = try file.writeAll("\(first) \(last)".utf8) }
    }
}
