public import Foundation
import Glibc
import Reactor

/// A port that sends and receives messages over stream sockets: TCP over IPv4 or IPv6, or Unix-domain.
///
/// A *local* port listens. Added to run loops, it delivers each message to its delegate on one of their
/// threads. A *remote* port represents a port that listens elsewhere; messages are sent to it.
///
/// ```swift
/// let port = SocketPort(tcpPort: 0)!
/// port.setDelegate(receiver)
/// RunLoop.current.add(port, forMode: .common)
///
/// let remote = SocketPort(remoteWithTCPPort: 4711, host: "localhost")!
/// let sent = remote.send(
///     before: Date(timeIntervalSinceNow: 5), components: [Data("hello".utf8) as NSData], from: port,
///     reserved: 0)
/// ```
///
/// The wire format is that of Apple's systems and of Foundation on Linux. Messages sent to one port over one
/// connection arrive in order. Bytes that are not a valid message, and a message of more than
/// ``longestMessage`` bytes or ``maximumComponentCount`` components, close the connection that they arrived on; other
/// connections are not affected.
///
/// A local port keeps at most a megabyte of messages, unfinished ones included, until its loop runs; beyond that,
/// senders block. Of messages longer than that, it receives one at a time. The port closes a connection on which no
/// message begins within 30 s of connecting, or on which a message, or the next megabyte of it, takes longer than 30 s.
/// A port has at most 256 connections. For a new one, it closes the connection that has been idle longest; while none
/// is idle, it accepts no other.
///
/// A port does not authenticate its peers. Replies to a message go to the host that it came from, whatever address it
/// names. A ``SocketPort`` among its components may name any host: send nothing confidential there. It sends nothing
/// if a message from another host names a Unix-domain or a loopback address.
///
/// Remote ports of the same address are equal and share one connection. It is opened when a message is sent,
/// and closed when the last of these ports is released or invalidated.
///
/// Differences from Foundation on Linux: its ports cannot be added to Reactor's loops, a message names its
/// receiver in place of its sender, and invalid bytes can crash the process. Datagram sockets are not
/// supported here.
open class SocketPort: Port, @unchecked Sendable {
    /// The maximum length of an encoded message, 16 MiB. Longer messages are not sent.
    public static let longestMessage = PortFrame.maximumLength
    /// The maximum number of a message's components, 4,096. Messages with more are not sent.
    public static let maximumComponentCount = PortFrame.maximumComponentCount

    // `@unchecked Sendable` is correct: every stored property is a constant or a mutex.

    let signature: PortSignature
    private let receiver: PortReceiver?
    /// Sends messages to this port's address. Nil once the port is invalid.
    private let sender: Mutex<PortSender?>

    private init(_ signature: PortSignature, _ receiver: PortReceiver?) {
        self.signature = signature
        self.receiver = receiver
        sender = Mutex(PortSender.shared(signature))
        super.init()
        receiver?.setMessageHandler { [weak self] in self?.signalSource() }
    }

    deinit {
        closeSockets()
        if Swift.type(of: self) == SocketPort.self { becomeInvalid() }
    }

    // MARK: Local ports

    /// Creates a local port that listens on a TCP port chosen by the kernel.
    ///
    /// - Precondition: A TCP port and a file descriptor are available. ``init(tcpPort:)`` returns nil
    ///   instead.
    public convenience override init() {
        guard let receiver = try? PortReceiver(at: .ipv4Any(port: 0)) else {
            fatalError(
                "SocketPort.init() failed to listen on a TCP port; use SocketPort(tcpPort: 0) to handle this."
            )
        }
        self.init(PortSignature(kind: .tcp, address: receiver.address), receiver)
    }

    /// Creates a local port that listens on a TCP port of all of the machine's IPv4 addresses; nil if that
    /// fails.
    ///
    /// - Parameter port: The TCP port; 0 lets the kernel choose one.
    public convenience init?(tcpPort port: UInt16) {
        guard let receiver = try? PortReceiver(at: .ipv4Any(port: port)) else { return nil }
        self.init(PortSignature(kind: .tcp, address: receiver.address), receiver)
    }

    /// Creates a local port that listens at an address; nil if that fails, or if `type` is not `SOCK_STREAM`.
    ///
    /// - Parameters:
    ///   - family: The protocol family (socket(2)), such as `PF_INET6`. It must be the family of `address`.
    ///   - type: `SOCK_STREAM`.
    ///   - protocol: `IPPROTO_TCP`, or 0 for the family's default.
    ///   - address: The bytes of a Linux `sockaddr`.
    public convenience init?(
        protocolFamily family: Int32, socketType type: Int32, protocol: Int32, address: Data
    ) {
        let kind = PortSignature.Kind(family: family, type: type, transport: `protocol`)
        guard kind.isStream, let socketAddress = SocketAddress(sockaddr: address),
            Int32(socketAddress.family.rawValue) == family,
            let receiver = try? PortReceiver(at: socketAddress)
        else { return nil }
        self.init(PortSignature(kind: kind, address: receiver.address), receiver)
    }

    /// Creates a local port that takes ownership of a listening socket. If the socket does not listen, or
    /// `type` is not `SOCK_STREAM`, closes the socket and returns nil.
    ///
    /// - Parameters:
    ///   - family: The socket's protocol family.
    ///   - type: The socket's type.
    ///   - protocol: The socket's protocol.
    ///   - sock: The socket's descriptor.
    public convenience init?(
        protocolFamily family: Int32, socketType type: Int32, protocol: Int32, socket sock: Int32
    ) {
        let kind = PortSignature.Kind(family: family, type: type, transport: `protocol`)
        guard sock >= 0, let receiver = try? PortReceiver(FileDescriptor(rawValue: sock)) else { return nil }
        guard kind.isStream else {
            receiver.close()
            return nil
        }
        self.init(PortSignature(kind: kind, address: receiver.address), receiver)
    }

    // MARK: Remote ports

    /// Creates a remote port for a TCP port of a host; nil if the host has no address.
    ///
    /// The initializer blocks while it resolves a host name, and prefers an IPv4 address.
    /// - Parameters:
    ///   - port: The TCP port.
    ///   - hostName: A host name or a numeric address; nil or empty for the loopback address.
    public convenience init?(remoteWithTCPPort port: UInt16, host hostName: String?) {
        let host = hostName.flatMap { $0.isEmpty ? nil : $0 }
        guard
            let address = host.map({ SocketAddress(resolving: $0, port: port) }) ?? .ipv4Loopback(port: port)
        else {
            return nil
        }
        var kind = PortSignature.Kind.tcp
        if address.ipv6 != nil { kind.family = PF_INET6 }
        self.init(PortSignature(kind: kind, address: address), nil)
    }

    /// Creates a remote port for an address. Sending fails if `address` is not a valid `sockaddr`.
    ///
    /// - Parameters:
    ///   - family: The protocol family.
    ///   - type: `SOCK_STREAM`; sending to other types fails.
    ///   - protocol: The protocol.
    ///   - address: The bytes of a Linux `sockaddr`.
    public convenience init(
        remoteWithProtocolFamily family: Int32, socketType type: Int32, protocol: Int32, address: Data
    ) {
        let kind = PortSignature.Kind(family: family, type: type, transport: `protocol`)
        self.init(PortSignature(kind: kind, address: SocketAddress(sockaddr: address) ?? .unixUnnamed), nil)
    }

    convenience init(remote signature: PortSignature) { self.init(signature, nil) }

    // MARK: Properties

    /// The protocol family (socket(2)).
    open var protocolFamily: Int32 { signature.kind.family }
    /// The socket type (socket(2)).
    open var socketType: Int32 { signature.kind.type }
    /// The protocol (socket(2)).
    open var `protocol`: Int32 { signature.kind.transport }
    /// The bytes of a Linux `sockaddr`: the address at which the port listens.
    open var address: Data { Data(signature.address.sockaddrBytes) }
    /// The listening socket of a local port; -1 for a remote or an invalid port.
    open var socket: Int32 { isValid ? receiver?.descriptor ?? -1 : -1 }

    /// Whether `object` is the same port, or both are remote ports of the same address.
    open override func isEqual(_ object: Any?) -> Bool {
        guard let other = object as? SocketPort else { return false }
        return self === other || receiver == nil && other.receiver == nil && signature == other.signature
    }

    /// Equal for equal ports.
    open override var hash: Int { signature.hashValue }

    // MARK: Invalidation

    /// Closes the port's sockets and discards undelivered messages; otherwise like ``Port/invalidate()``.
    open override func invalidate() {
        closeSockets()
        super.invalidate()
    }

    private func closeSockets() {
        receiver?.close()
        // Released outside the lock, because releasing the last reference closes the connection.
        let sender = sender.withLock { $0.take() }
        withExtendedLifetime(sender) {}
    }

    // MARK: Messages

    /// Sends a message to this port. Blocks until the kernel has taken the message.
    ///
    /// Threads that send to the same address take turns.
    ///
    /// - Parameters:
    ///   - limitDate: The date until which to wait for other senders, the connection and the receiver. With a
    ///     date in the past, the message is sent only if that is possible without waiting. If the date passes
    ///     when the message is partly sent, the message is lost and the connection is closed; the next
    ///     message opens a new one.
    ///   - msgID: The message's number, which is truncated to 32 bits.
    ///   - components: Up to ``maximumComponentCount`` `Data`, `NSData` or ``SocketPort`` objects.
    ///   - receivePort: A local ``SocketPort`` to reply to, or nil.
    ///   - headerSpaceReserved: Ignored.
    /// - Returns: Whether the kernel has taken the message. The message is still lost if the receiver closes
    ///   the connection before reading it. Also false if a component has another type, the message is too
    ///   long or has too many components, or the port is invalid.
    open override func send(
        before limitDate: Date, msgid msgID: Int, components: NSMutableArray?, from receivePort: Port?,
        reserved headerSpaceReserved: Int
    ) -> Bool {
        guard signature.isReachable, let messageSender = sender.withLock({ $0 }) else { return false }
        guard let encodable = PortFrame.components(components),
            receivePort == nil || receivePort is SocketPort
        else {
            return false
        }
        let replySignature = (receivePort as? SocketPort)?.signature ?? .none
        let number = UInt32(truncatingIfNeeded: msgID)
        guard let bytes = PortFrame(number: number, sender: replySignature, components: encodable).bytes
        else {
            return false
        }
        return messageSender.send(bytes, before: limitDate)
    }

    override var hasMessages: Bool { receiver?.hasMessages ?? false }

    override func deliver() {
        guard isValid, let received = receiver?.takeMessage() else { return }
        // Signal before calling the delegate, which may run the loop.
        if hasMessages { signalSource() }
        let (frame, peer) = (received.frame, received.peer)
        let message = PortMessage(
            sendPort: frame.sender.replyPort(of: peer).map { SocketPort(remote: $0) },
            receivePort: self,
            components: frame.components.map { $0.object(from: peer) })
        message.msgid = frame.number
        delegate()?.handle(message)
    }
}

// MARK: - Foundation values

extension PortFrame {
    /// The components to send for a Cocoa array; nil if it has an object that cannot be sent.
    fileprivate static func components(_ array: NSMutableArray?) -> [Component]? {
        var components: [Component] = []
        for object in array ?? [] {
            switch object {
            case let data as Data: components.append(.data(Array(data)[...]))
            case let data as NSData: components.append(.data(Array(data as Data)[...]))
            case let port as SocketPort: components.append(.port(port.signature))
            default: return nil
            }
        }
        return components
    }
}

extension PortFrame.Component {
    /// The object for ``PortMessage/components`` of a message from `peer`.
    fileprivate func object(from peer: SocketAddress) -> AnyObject {
        switch self {
        case .data(let bytes): NSData(data: Data(bytes))
        case .port(let signature): SocketPort(remote: signature.component(of: peer))
        }
    }
}

extension SocketAddress {
    /// Creates an address from the bytes of a Linux `sockaddr`.
    fileprivate init?(sockaddr data: Data) {
        let bytes = Array(data)
        unsafe self.init(bytes.span.bytes)
    }

    /// Resolves `host`, preferring an IPv4 address; nil if it has no address. Blocks the calling thread,
    /// whose loop runs in a private mode until then.
    fileprivate init?(resolving host: String, port: UInt16) {
        if let address = SocketAddress(host, port: port) {
            self = address
            return
        }
        let mode = RunLoop.Mode("ReactorFoundation.SocketPort")
        var answer: Resolver.Answer?
        Resolver.resolve(host: host, port: port, inModes: [mode]) { answer = $0 }
        while answer == nil, RunLoop.current.run(mode: mode, before: Deadline.distantFuture) {}
        guard case .success(let addresses) = answer,
            let address = addresses.first(where: { $0.ipv4 != nil }) ?? addresses.first
        else { return nil }
        self = address
    }
}
