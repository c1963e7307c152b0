import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

/// A port's delegate that records the messages, and runs its thread's loop until they arrive.
final class Mailbox: PortDelegate {
    private(set) var messages: [PortMessage] = []
    private let onMessage: (PortMessage) -> Void

    init(_ onMessage: @escaping (PortMessage) -> Void = { _ in }) { self.onMessage = onMessage }

    func handle(_ message: PortMessage) {
        messages.append(message)
        onMessage(message)
    }

    /// Runs the loop until `count` messages have arrived in all.
    func wait(_ count: Int) {
        while messages.count < count, RunLoop.current.run(mode: .default, before: Deadline.distantFuture) {}
    }

    /// The messages' components as text.
    var texts: [String] { messages.map(\.text) }
}

extension PortMessage {
    var text: String {
        (components ?? []).map { ($0 as? NSData).map { String(decoding: $0 as Data, as: UTF8.self) } ?? "-" }
            .joined(separator: ",")
    }
}

extension SocketPort {
    /// A local port with a delegate, in the default mode of the calling thread's loop.
    static func listening(_ mailbox: Mailbox) throws -> SocketPort {
        let port = try #require(SocketPort(tcpPort: 0))
        port.setDelegate(mailbox)
        RunLoop.current.add(port, forMode: .default)
        return port
    }

    static func listening() throws -> (SocketPort, Mailbox) {
        let mailbox = Mailbox()
        return (try listening(mailbox), mailbox)
    }

    /// The TCP port.
    var tcpPort: UInt16 {
        (try? SocketAddress.local(of: FileDescriptor(rawValue: socket)).port) ?? 0
    }

    /// A remote port for this port.
    var remote: SocketPort { SocketPort(remoteWithTCPPort: tcpPort, host: "127.0.0.1")! }

    @discardableResult
    func sendTexts(
        _ texts: String..., number: Int = 0, before date: Date = .distantFuture, from port: Port? = nil
    ) -> Bool {
        let components = NSMutableArray(array: texts.map { NSData(data: Data($0.utf8)) })
        return send(before: date, msgid: number, components: components, from: port, reserved: 0)
    }

    @discardableResult
    func send(byteCount: Int, before date: Date) -> Bool {
        let components = NSMutableArray(array: [NSData(data: Data(count: byteCount))])
        return send(before: date, components: components, from: nil, reserved: 0)
    }
}

extension SocketPeer {
    /// A socket that is bound to a loopback port and does not listen.
    static func bound() throws -> SocketPeer {
        let socket = try SocketPeer(family: AF_INET)
        try socket.bind(to: .ipv4Loopback(port: 0))
        return socket
    }

    /// A socket that listens on a loopback port.
    static func listening() throws -> SocketPeer { try SocketPeer(listeningAt: .ipv4Loopback(port: 0)) }

    /// A socket that is connected to a loopback port.
    static func connected(to port: UInt16) throws -> SocketPeer {
        try SocketPeer(connectedTo: .ipv4Loopback(port: port))
    }

    /// A remote port for the socket's address.
    var remote: SocketPort {
        SocketPort(remoteWithTCPPort: (try? localAddress)?.port ?? 0, host: "127.0.0.1")!
    }
}

/// Encoded messages, written without the library.
enum PortBytes {
    /// The signature of no port.
    static let noPort: [UInt8] = [2, 1, 6, 16, 16, 2] + [UInt8](repeating: 0, count: 14)

    /// A message with one component.
    static func message(_ text: String, from signature: [UInt8] = noPort) -> [UInt8] {
        message(components: [Array(text.utf8)], from: signature)
    }

    static func message(components: [[UInt8]], from signature: [UInt8] = noPort) -> [UInt8] {
        let parts = components.flatMap { bigEndian(1) + bigEndian($0.count) + $0 }
        let body = bigEndian(0) + signature + parts
        return [0xD0, 0xCF, 0x50, 0xC0] + bigEndian(body.count + 8) + body
    }

    private static func bigEndian(_ number: Int) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
    }
}
