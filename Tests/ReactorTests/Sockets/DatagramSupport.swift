import Glibc
import Reactor
import Synchronization
import SystemPackage

/// The kinds of address that datagram sockets can be bound to here.
enum DatagramKind: CaseIterable {
    case ipv4
    case ipv6
    case path
    case abstract

    /// An address that no other test has.
    func freshAddress() -> SocketAddress {
        switch self {
        case .ipv4: .ipv4Loopback(port: 0)
        case .ipv6: .ipv6Loopback(port: 0)
        case .path: try! SocketAddress(unixPath: freshPath())
        case .abstract: try! SocketAddress(unixAbstractName: freshPath().string.utf8)
        }
    }
}

func freshPath() -> FilePath {
    let number = lastPath.add(1, ordering: .relaxed).newValue
    return FilePath("/tmp/reactor-datagrams-\(getpid())-\(number)")
}

private let lastPath = Atomic(0)

func exists(_ path: FilePath) -> Bool { access(path.string, F_OK) == 0 }

/// The received datagrams, in order.
final class Inflow {
    var texts: [String] = []
    var datagrams: [DatagramSocket.Datagram] = []
    var events: [DatagramSocket.Event] = []

    /// A socket at `address`, in the default mode, that records what it receives and then calls `body`.
    func socket(
        at address: SocketAddress, _ options: DatagramSocket.Options = .init(),
        _ body: @escaping (DatagramSocket) -> Void = { _ in }
    ) throws -> DatagramSocket {
        let socket = try DatagramSocket(
            boundTo: address, options: options,
            receive: { socket, bytes, datagram in
                self.note(bytes, datagram)
                body(socket)
            }, events: { _, event in self.events.append(event) })
        try RunLoop.current.add(socket, forMode: .default)
        return socket
    }

    func note(_ bytes: RawSpan, _ datagram: DatagramSocket.Datagram) {
        texts.append(bytes.text)
        datagrams.append(datagram)
    }

    /// Runs the loop until `count` datagrams were received.
    func wait(for count: Int) { runLoop { texts.count >= count } }
}

/// Runs the loop until `condition` holds.
func runLoop(until condition: () -> Bool) {
    while !condition(), RunLoop.current.run(mode: .default, before: .minutesAway) {}
}

/// A socket in no loop that ignores what it receives.
func sender(to address: SocketAddress) throws -> DatagramSocket {
    try DatagramSocket(connectedTo: address) { _, _, _ in }
}

extension DatagramSocket {
    /// The two ends of a Unix-domain pair.
    static func pair(
        receive: @escaping Receiver = { _, _, _ in }, events: @escaping EventHandler = failOnEvent
    ) throws -> (DatagramSocket, other: FileDescriptor) {
        let (one, other) = try Channel.datagrams.open()
        return (try DatagramSocket(descriptor: one, receive: receive, events: events), other)
    }
}

extension RawSpan {
    var text: String { withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
