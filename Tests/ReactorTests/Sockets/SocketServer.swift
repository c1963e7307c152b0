import Glibc
import Reactor
import SystemPackage
import Testing

/// The kinds of address are the same for stream sockets.
typealias AddressKind = DatagramKind

/// A listening socket, by plain system calls.
final class SocketServer: Sendable {
    private let listening: SocketPeer
    let address: SocketAddress

    private var number: CInt { listening.number }

    /// - Parameter isNarrow: Whether the kernel's buffers of connections are small.
    init(_ kind: AddressKind = .ipv4, backlog: CInt = 64, isNarrow: Bool = false) throws {
        let wanted = kind.freshAddress()
        listening = try SocketPeer(family: CInt(wanted.family.rawValue))
        if isNarrow { listening.narrow() }
        try listening.bind(to: wanted)
        try listening.listen(backlog)
        address = try listening.localAddress
    }

    deinit { stop() }

    var port: UInt16 { address.port ?? 0 }

    /// Waits for the next connection.
    func accept() throws -> SocketPeer { try listening.accept() }

    /// Whether a connection is pending.
    var hasPendingConnection: Bool {
        var request = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, 0) == 1
    }

    /// Ends the wait of a thread for a connection.
    func stopAccepting() { Glibc.shutdown(number, CInt(SHUT_RDWR)) }

    func stop() {
        listening.close()
        if let path = address.unixPath { unlink(path.string) }
    }
}

/// An address without a listener.
///
/// A port stays bound for as long as the process lives, so no other test can listen there. A path is missing.
func refusingAddress(_ kind: AddressKind = .ipv4) throws -> SocketAddress {
    let wanted = kind.freshAddress()
    guard kind != .path else { return wanted }
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    let number = try SystemCall.make { socket(CInt(wanted.family.rawValue), type, 0) }
    try SystemCall.make { wanted.withSockAddr { bind(number, $0, $1) } }
    return try SocketAddress.local(of: FileDescriptor(rawValue: number))
}

/// Serves one connection, on a thread of its own.
final class SocketHost {
    private let server: SocketServer
    private let thread: JoinableThread
    var address: SocketAddress { server.address }

    init(_ kind: AddressKind = .ipv4, _ body: @escaping @Sendable (SocketPeer) -> Void) throws {
        let server = try SocketServer(kind)
        self.server = server
        thread = try JoinableThread(name: "host") { if let peer = try? server.accept() { body(peer) } }
    }

    deinit {
        server.stopAccepting()
        thread.join()
    }
}

/// A listener with a full backlog: further clients keep connecting.
final class FullServer {
    private let server: SocketServer
    private var clients: [CInt] = []
    var address: SocketAddress { server.address }

    init(_ kind: AddressKind = .ipv4) throws {
        server = try SocketServer(kind, backlog: 0)
        // The kernel accepts one client, and one more fits in the backlog.
        for _ in 0..<2 {
            let type = CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue)
            let client = socket(CInt(address.family.rawValue), type, 0)
            clients.append(client)
            _ = address.withSockAddr { connect(client, $0, $1) }
        }
        var request = pollfd(fd: clients[0], events: Int16(POLLOUT), revents: 0)
        try #require(poll(&request, 1, 60_000) == 1)
    }

    deinit { for client in clients { close(client) } }

    /// Accepts one client, which makes room for another.
    func acceptOne() { _ = try? server.accept() }
}
