import Glibc
import Reactor
import Synchronization
import SystemPackage

extension SocketAddress {
    /// A loopback address that no other test uses, with port 0: on 127.0.0.1 the kernel soon reuses the port that one
    /// test has closed.
    static var ownLoopback: SocketAddress {
        .ipv4(0x7f01_0000 + lastLoopback.add(1, ordering: .relaxed).newValue, port: 0)
    }
}

private let lastLoopback = Atomic<UInt32>(0)

/// The kind of address that a listener listens at.
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

/// Whether connections to `address` are refused. A child process that another test is starting may still have the
/// listening socket for a moment.
func isRefused(_ address: SocketAddress) -> Bool {
    let end = Deadline.minutesAway
    while .now < end {
        do { _ = try SocketPeer(connectedTo: address) } catch Errno.connectionRefused { return true } catch {
            continue
        }
    }
    return false
}

/// Listens at `address` once it is free.
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

/// A listener in `mode` of this thread's loop, whose closure alone retains `canary`.
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
