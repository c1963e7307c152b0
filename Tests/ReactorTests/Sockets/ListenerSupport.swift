import Glibc
import Reactor
import Synchronization
import SystemPackage

extension SocketAddress {
    /// A loopback address that is nobody else's, with a port to be chosen: on 127.0.0.1 the port that one
    /// test has closed is soon another's.
    static var ownLoopback: SocketAddress {
        .ipv4(0x7f01_0000 + lastLoopback.add(1, ordering: .relaxed).newValue, port: 0)
    }
}

private let lastLoopback = Atomic<UInt32>(0)

/// Where a test's listener listens.
enum Place: CaseIterable {
    case ipv4, ipv6, path, abstract

    func address(in folder: TemporaryFolder) throws -> SocketAddress {
        switch self {
        case .ipv4: .ownLoopback
        case .ipv6: .ipv6Loopback(port: 0)
        case .path: try SocketAddress(unixPath: folder.path("socket"))
        case .abstract: .unixUnnamed
        }
    }
}

/// A client's end of a connection, which is closed with its variable. Calls on it wait.
final class Client: Sendable {
    let descriptor: FileDescriptor

    /// Connects; the kernel lets it in, as long as there is room in the backlog.
    init(_ address: SocketAddress, isBlocking: Bool = true) throws {
        let type = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        let number = try SystemCall.make { socket(CInt(address.family.rawValue), CInt(type), 0) }
        descriptor = FileDescriptor(rawValue: number)
        let code = address.withSockAddr { connect(number, $0, $1) }
        guard code == 0 else { throw Errno(rawValue: errno) }
    }

    deinit { try? descriptor.close() }

    /// Ends the connection with a reset, as a client that has crashed.
    func reset() throws {
        var linger = linger(l_onoff: 1, l_linger: 0)
        let size = socklen_t(MemoryLayout<linger>.size)
        try SystemCall.make { setsockopt(descriptor.rawValue, SOL_SOCKET, SO_LINGER, &linger, size) }
        // Closes the connection, and keeps the number from those that other threads get.
        let null = try SystemCall.make { open("/dev/null", O_RDWR) }
        try SystemCall.make { dup2(null, descriptor.rawValue) }
        close(null)
    }

    func put(_ bytes: [UInt8]) throws { try descriptor.writeAll(bytes) }

    /// What comes until the other end closes.
    func all() throws -> [UInt8] {
        var bytes: [UInt8] = []
        while let byte = descriptor.readOne() { bytes.append(byte) }
        return bytes
    }
}

/// Whether nobody listens at `address` any longer. A child that another test is just starting may still have
/// the socket for a moment.
func isRefused(_ address: SocketAddress) -> Bool {
    let end = Deadline.minutesAway
    while .now < end {
        do { _ = try Client(address) } catch Errno.connectionRefused { return true } catch { continue }
    }
    return false
}

/// Listens at `address` once whoever has closed it is really gone.
func listenAgain(_ address: SocketAddress) -> Bool {
    let end = Deadline.minutesAway
    while .now < end {
        do { _ = try Listener(address) { _, _ in } } catch Errno.addressInUse { continue } catch {
            return false
        }
        return true
    }
    return false
}

/// A listener in `mode` of this thread's loop, whose closure is all that holds `canary`.
func addListener(
    _ address: SocketAddress = .ownLoopback, _ mode: RunLoop.Mode = .default, canary: AtEnd? = nil,
    _ body: @escaping (Listener, Listener.Connection) -> Void
) throws -> Listener {
    let listener = try Listener(address) { listener, connection in
        withExtendedLifetime(canary) { body(listener, connection) }
    }
    try RunLoop.current.add(listener, forMode: mode)
    return listener
}
