import Glibc
import Reactor
import SystemPackage

/// Every kind of address is one for stream sockets, too.
typealias AddressKind = DatagramKind

/// A listening socket, by plain system calls.
final class SocketServer: Sendable {
    private let listening: SocketPeer
    let address: SocketAddress

    private var number: CInt { listening.number }

    /// - Parameter isNarrow: Whether connections keep little in the kernel.
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

    /// Whether somebody has connected who was not accepted yet.
    var hasGuest: Bool {
        var request = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, 0) == 1
    }

    /// Has a thread that waits for a connection wait no longer.
    func turnAway() { Glibc.shutdown(number, CInt(SHUT_RDWR)) }

    func stop() {
        listening.close()
        if let path = address.unixPath { unlink(path.string) }
    }
}

/// An address at which nobody listens.
///
/// A port stays taken for as long as the process lives: nobody else can come to listen there. A path is missing.
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
        server.turnAway()
        thread.join()
    }
}
