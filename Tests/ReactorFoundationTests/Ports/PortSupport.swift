import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

/// A port's delegate that keeps the messages, and runs its thread's loop until they have come.
final class Mailbox: PortDelegate {
    private(set) var messages: [PortMessage] = []
    private let atMessage: (PortMessage) -> Void

    init(_ atMessage: @escaping (PortMessage) -> Void = { _ in }) { self.atMessage = atMessage }

    func handle(_ message: PortMessage) {
        messages.append(message)
        atMessage(message)
    }

    /// Runs the loop until so many messages have come in all.
    func wait(_ count: Int) {
        while messages.count < count, RunLoop.current.run(mode: .default, before: Deadline.distantFuture) {}
    }

    /// What the messages say: their components' bytes, as text.
    var texts: [String] { messages.map(\.text) }
}

extension PortMessage {
    var text: String {
        (components ?? []).map { ($0 as? NSData).map { String(decoding: $0 as Data, as: UTF8.self) } ?? "-" }
            .joined(separator: ",")
    }
}

extension SocketPort {
    /// A port that listens, with its delegate, on the calling thread's loop.
    static func listening(_ mailbox: Mailbox) throws -> SocketPort {
        let port = try #require(SocketPort(tcpPort: 0))
        port.setDelegate(mailbox)
        RunLoop.current.add(port, forMode: .default)
        return port
    }

    /// The number of the TCP port.
    var number: UInt16 {
        (try? SocketAddress.local(of: FileDescriptor(rawValue: socket)).port) ?? 0
    }

    /// What stands for this port elsewhere.
    var remote: SocketPort { SocketPort(remoteWithTCPPort: number, host: "127.0.0.1")! }

    @discardableResult
    func say(
        _ texts: String..., number: Int = 0, before date: Date = .distantFuture, from port: Port? = nil
    ) -> Bool {
        let components = NSMutableArray(array: texts.map { NSData(data: Data($0.utf8)) })
        return send(before: date, msgid: number, components: components, from: port, reserved: 0)
    }

    @discardableResult
    func send(_ bytes: Int, before date: Date) -> Bool {
        let components = NSMutableArray(array: [NSData(data: Data(count: bytes))])
        return send(before: date, components: components, from: nil, reserved: 0)
    }
}

extension SocketPeer {
    /// A socket that has an address of this machine, and does not listen.
    static func bound() throws -> SocketPeer {
        let socket = try SocketPeer(family: AF_INET)
        try socket.bind(to: .ipv4Loopback(port: 0))
        return socket
    }

    /// A socket that listens on this machine.
    static func listening() throws -> SocketPeer { try SocketPeer(listeningAt: .ipv4Loopback(port: 0)) }

    /// A socket that is connected to a port of this machine.
    static func connected(to port: UInt16) throws -> SocketPeer {
        try SocketPeer(connectedTo: .ipv4Loopback(port: port))
    }

    /// What stands for the socket elsewhere.
    var remote: SocketPort {
        SocketPort(remoteWithTCPPort: (try? localAddress)?.port ?? 0, host: "127.0.0.1")!
    }
}
