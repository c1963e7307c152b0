import Glibc
import Reactor
import Synchronization
import SystemPackage

// MARK: Addresses

/// The kinds of address that sockets can be bound to here.
enum DatagramKind: CaseIterable {
    case ipv4, ipv6, path, abstract

    /// An address that no other test has.
    func freshAddress() -> SocketAddress {
        switch self {
        case .ipv4: .ipv4Loopback(port: 0)
        case .ipv6: .ipv6Loopback(port: 0)
        case .path: try! SocketAddress(unixPath: freshPath())
        case .abstract: try! SocketAddress(unixAbstractName: freshPath().string.utf8)
        }
    }

    /// The same for a listener. A path is in `folder`.
    func address(in folder: TemporaryFolder) throws -> SocketAddress {
        switch self {
        case .ipv4: .ownLoopback
        case .ipv6: .ipv6Loopback(port: 0)
        case .path: try SocketAddress(unixPath: FilePath(folder.path("socket")))
        case .abstract: .unixUnnamed
        }
    }
}

/// The kind of address that a listener listens at.
typealias Place = DatagramKind

extension SocketAddress {
    /// A loopback address that no other test uses, with port 0: on 127.0.0.1 the kernel soon reuses the port that one
    /// test has closed.
    static var ownLoopback: SocketAddress {
        .ipv4(0x7f01_0000 + lastLoopback.add(1, ordering: .relaxed).newValue, port: 0)
    }
}

private let lastLoopback = Atomic<UInt32>(0)

func freshPath() -> FilePath {
    FilePath("/tmp/reactor-sockets-\(getpid())-\(lastPath.add(1, ordering: .relaxed).newValue)")
}

private let lastPath = Atomic(0)

func exists(_ path: FilePath) -> Bool { access(path.string, F_OK) == 0 }

// MARK: Listeners

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
        do {
            _ = try Listener(address) { _, _ in }
            return true
        } catch {
            guard error.errno == .addressInUse else { return false }
        }
    }
    return false
}

/// A listener in `mode` of this thread's loop, whose closure alone retains `canary`.
func addListener(
    _ address: SocketAddress = .ownLoopback, _ mode: RunLoop.Mode = .default, canary: AtEnd? = nil,
    _ body: @escaping (Listener, Connection) -> Void
) throws -> Listener {
    let listener = try Listener(address) { listener, connection in
        withExtendedLifetime(canary) { body(listener, connection) }
    }
    try RunLoop.current.add(listener, forMode: mode)
    return listener
}

/// Calls `body` while `count` clients of `listener` are connected.
func withClients(_ count: Int, of listener: Listener, _ body: ([SocketPeer]) throws -> Void) throws {
    let clients = try (0..<count).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
    try withExtendedLifetime(clients) { try body(clients) }
}

// MARK: Datagrams

/// The received datagrams, in order.
final class Inflow {
    var texts: [String] = []
    var datagrams: [DatagramSocket.Metadata] = []
    var events: [DatagramSocket.Event] = []

    /// A socket at `address`, in the default mode, that records what it receives and then calls `body`.
    func socket(
        at address: SocketAddress = .ipv4Loopback(port: 0), _ options: DatagramSocket.Options = .init(),
        _ body: @escaping (DatagramSocket) -> Void = { _ in }
    ) throws -> DatagramSocket {
        try added(
            DatagramSocket(
                boundTo: address, options: options,
                receive: { socket, bytes, datagram in
                    self.note(bytes, datagram)
                    body(socket)
                }, events: note))
    }

    /// The same, connected to `peer`.
    func socket(
        connectedTo peer: SocketAddress, boundTo address: SocketAddress? = nil
    ) throws -> DatagramSocket {
        try added(
            DatagramSocket(
                connectedTo: peer, boundTo: address,
                receive: { _, bytes, datagram in self.note(bytes, datagram) }, events: note))
    }

    /// The two ends of a Unix-domain pair; one of them records what it receives.
    func pair(
        onEvent: @escaping (DatagramSocket) -> Void = { _ in }
    ) throws -> (DatagramSocket, other: FileDescriptor) {
        let (one, other) = try Channel.datagrams.open()
        let socket = try DatagramSocket(
            descriptor: one,
            receive: { _, bytes, datagram in self.note(bytes, datagram) },
            events: { socket, event in
                self.note(socket, event)
                onEvent(socket)
            })
        return (socket, other)
    }

    private func added(_ socket: DatagramSocket) throws -> DatagramSocket {
        try RunLoop.current.add(socket, forMode: .default)
        return socket
    }

    private func note(_ bytes: RawSpan, _ datagram: DatagramSocket.Metadata) {
        texts.append(bytes.text)
        datagrams.append(datagram)
    }

    private func note(_ socket: DatagramSocket, _ event: DatagramSocket.Event) { events.append(event) }

    /// Runs the loop until `count` datagrams were received.
    func wait(for count: Int) { RunLoop.current.serve { texts.count >= count } }
}

/// A socket in no loop, which expects no events.
func silentSocket(at address: SocketAddress = .ipv4Loopback(port: 0)) throws -> DatagramSocket {
    try DatagramSocket(boundTo: address) { _, _, _ in }
}

/// A socket in no loop that ignores what it receives.
func sender(to address: SocketAddress) throws -> DatagramSocket {
    try DatagramSocket(connectedTo: address) { _, _, _ in }
}

extension RawSpan {
    var text: String { withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
