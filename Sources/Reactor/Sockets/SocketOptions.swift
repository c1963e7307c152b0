import Glibc
import SystemPackage

/// What a client has set of a pair of socket streams.
struct SocketOptions {
    var connectTimeout: Duration = .seconds(75)
    /// Nil for none.
    var idleTimeout: Duration?
    var writeTimeout: Duration?
    /// Nil for what the system does by itself.
    var noDelay: Bool?
    var keepAlive: Bool?
    var serviceType: StreamNetworkServiceTypeValue?

    /// Sets what belongs to the socket itself; what it has no use for is passed over.
    func apply(to number: CInt) {
        if let noDelay { Self.set(number, CInt(IPPROTO_TCP), TCP_NODELAY, noDelay) }
        if let keepAlive { Self.set(number, SOL_SOCKET, SO_KEEPALIVE, keepAlive) }
        serviceType?.mark(number)
    }

    private static func set(_ number: CInt, _ level: CInt, _ option: CInt, _ isOn: Bool) {
        var value: CInt = isOn ? 1 : 0
        _ = unsafe setsockopt(number, level, option, &value, socklen_t(MemoryLayout<CInt>.size))
    }
}
