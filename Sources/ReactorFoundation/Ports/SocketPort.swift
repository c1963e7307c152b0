public import Foundation
import Glibc
import Reactor

/// A port that is reached over a stream socket: TCP over IPv4 or IPv6, or a Unix-domain socket.
///
/// A *local* port listens; added to run loops, it hands its delegate, on one of their threads, each message that comes
/// in. A *remote* port stands for one that listens elsewhere, and is there to send to.
///
/// ```swift
/// let port = SocketPort(tcpPort: 0)!
/// port.setDelegate(receiver)
/// RunLoop.current.add(port, forMode: .common)
///
/// let remote = SocketPort(remoteWithTCPPort: 4711, host: "localhost")!
/// let sent = remote.send(before: Date(timeIntervalSinceNow: 5), components: [Data("hello".utf8) as NSData], from: port,
///     reserved: 0)
/// ```
///
/// Messages travel as between Apple's systems and as Foundation has them on Linux, so that old peers understand. They
/// arrive in the order in which one port has sent them. What is no message, and one of more than
/// ``longestMessage`` bytes, ends the connection it has come on, and no other. What has come in waits for the loop to
/// run, up to about a megabyte; beyond that the senders wait.
///
/// Connections are made when they are needed, and kept for all remote ports of the same address, while one of these is
/// in use. Remote ports of one address are equal.
///
/// Where Foundation on Linux differs: there a port cannot be added to this library's loops, a message names its receiver
/// in place of its sender, and garbage can crash. Datagram sockets are not served here.
open class SocketPort: Port, @unchecked Sendable {
    /// The most bytes that a message may have with all that belongs to it, 16 MiB; longer ones are not sent.
    public static let longestMessage = PortFrame.mostBytes

    // `@unchecked Sendable` is right: all of it is either constant or a mutex.

    let signature: PortSignature
    private let receiver: PortReceiver?
    /// What messages to this port's address go over. Nil once the port is invalid.
    private let link: Mutex<PortLink?>

    private init(_ signature: PortSignature, _ receiver: PortReceiver?) {
        self.signature = signature
        self.receiver = receiver
        link = Mutex(PortLink.shared(signature))
        super.init()
        receiver?.setBell { [weak self] in self?.announceArrival() }
    }

    deinit {
        closeSockets()
        if Swift.type(of: self) == SocketPort.self { retire() }
    }

    // MARK: Local ports

    /// Listens at a TCP port that the kernel chooses.
    ///
    /// - Precondition: There is one, and a descriptor to listen with; ``init(tcpPort:)`` is nil then.
    public convenience override init() {
        guard let receiver = try? PortReceiver(at: .ipv4Any(port: 0)) else {
            preconditionFailure("there is no port, or no descriptor, left for a SocketPort")
        }
        self.init(PortSignature(kind: .tcp, address: receiver.address), receiver)
    }

    /// Listens at a TCP port of all the machine's IPv4 addresses; nil if that cannot be.
    ///
    /// - Parameter port: The port; 0 has the kernel choose one.
    public convenience init?(tcpPort port: UInt16) {
        guard let receiver = try? PortReceiver(at: .ipv4Any(port: port)) else { return nil }
        self.init(PortSignature(kind: .tcp, address: receiver.address), receiver)
    }

    /// Listens at an address; nil if that cannot be, or `type` is not `SOCK_STREAM`.
    ///
    /// - Parameters:
    ///   - family: The family of protocols, as socket(2) has it, such as `PF_INET6`; that of the address.
    ///   - type: `SOCK_STREAM`.
    ///   - protocol: `IPPROTO_TCP`, or 0 for the family's own.
    ///   - address: A `sockaddr`, in this system's form.
    public convenience init?(
        protocolFamily family: Int32, socketType type: Int32, protocol: Int32, address: Data
    ) {
        let kind = PortSignature.Kind(family: family, type: type, transport: `protocol`)
        guard kind.isStream, let place = SocketAddress(sockaddr: address),
            Int32(place.family.rawValue) == family,
            let receiver = try? PortReceiver(at: place)
        else { return nil }
        self.init(PortSignature(kind: kind, address: receiver.address), receiver)
    }

    /// Takes over a socket that listens already; nil, and the socket closed, if it does not, or `type` is not
    /// `SOCK_STREAM`.
    ///
    /// - Parameters:
    ///   - family: The socket's family of protocols.
    ///   - type: Its type.
    ///   - protocol: Its protocol.
    ///   - sock: Belongs to the port from now on.
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

    /// Stands for a TCP port of a host.
    ///
    /// A name is looked up at once, which may take a while; of its addresses an IPv4 one is preferred. Nil if there is
    /// none.
    /// - Parameters:
    ///   - port: The port's number.
    ///   - hostName: A name, or an address in digits; nil or empty for this machine.
    public convenience init?(remoteWithTCPPort port: UInt16, host hostName: String?) {
        let host = hostName.flatMap { $0.isEmpty ? nil : $0 }
        guard let address = host.map({ SocketAddress(lookingUp: $0, port) }) ?? .ipv4Loopback(port: port)
        else {
            return nil
        }
        var kind = PortSignature.Kind.tcp
        if address.ipv6 != nil { kind.family = PF_INET6 }
        self.init(PortSignature(kind: kind, address: address), nil)
    }

    /// Stands for a port that listens at an address. If `address` is no `sockaddr`, nothing can be sent there.
    ///
    /// - Parameters:
    ///   - family: The family of protocols.
    ///   - type: `SOCK_STREAM`; to others nothing is sent.
    ///   - protocol: The protocol.
    ///   - address: A `sockaddr`, in this system's form.
    public convenience init(
        remoteWithProtocolFamily family: Int32, socketType type: Int32, protocol: Int32, address: Data
    ) {
        let kind = PortSignature.Kind(family: family, type: type, transport: `protocol`)
        self.init(PortSignature(kind: kind, address: SocketAddress(sockaddr: address) ?? .unixUnnamed), nil)
    }

    convenience init(remote signature: PortSignature) { self.init(signature, nil) }

    // MARK: What it is

    /// The family of protocols, as socket(2) has it.
    open var protocolFamily: Int32 { signature.kind.family }
    /// The type of socket, as socket(2) has it.
    open var socketType: Int32 { signature.kind.type }
    /// The protocol, as socket(2) has it.
    open var `protocol`: Int32 { signature.kind.transport }
    /// Where the port listens, or the remote one does: a `sockaddr`, in this system's form.
    open var address: Data { Data(signature.address.kernelBytes) }
    /// The socket that a local port listens with; -1 for a remote port, and for one that is no longer valid.
    open var socket: Int32 { isValid ? receiver?.descriptor ?? -1 : -1 }

    /// Whether the other is the same port, or one that stands for the same address.
    open override func isEqual(_ object: Any?) -> Bool {
        guard let other = object as? SocketPort else { return false }
        return self === other || receiver == nil && other.receiver == nil && signature == other.signature
    }

    /// Equal for equal ports.
    open override var hash: Int { signature.hashValue }

    // MARK: Its end

    /// Closes the port's sockets, and what waits to be delivered is lost; in all else as ``Port/invalidate()``.
    open override func invalidate() {
        closeSockets()
        super.invalidate()
    }

    private func closeSockets() {
        receiver?.close()
        let link = link.withLock { $0.take() }
        withExtendedLifetime(link) {}
    }

    // MARK: Messages

    /// Sends a message to this port, as soon as whoever sends to the same address has done, and waits until the kernel
    /// has taken it.
    ///
    /// - Parameters:
    ///   - limitDate: How long to wait at most, for others, a connection, and for the receiver to read. With one that
    ///     has passed it is sent only if nothing has to be waited for. A message that is half sent by then is lost, and
    ///     the connection with it; the next message makes a new one.
    ///   - msgID: The message's number, of which 32 bits travel.
    ///   - components: `Data`, `NSData`, or ``SocketPort`` objects.
    ///   - receivePort: A local ``SocketPort`` that answers are to be sent to, or nil.
    ///   - headerSpaceReserved: Not used.
    /// - Returns: Whether the kernel has taken the message. It is lost all the same if the receiver ends, or closes its
    ///   side, before having read it. False, too, for components of other types, for a message that is too long, and
    ///   for a port that is not valid.
    open override func send(
        before limitDate: Date, msgid msgID: Int, components: NSMutableArray?, from receivePort: Port?,
        reserved headerSpaceReserved: Int
    ) -> Bool {
        guard signature.isReachable, let link = link.withLock({ $0 }) else { return false }
        guard let carried = PortFrame.components(components), receivePort == nil || receivePort is SocketPort
        else {
            return false
        }
        let sender = (receivePort as? SocketPort)?.signature ?? .none
        let number = UInt32(truncatingIfNeeded: msgID)
        guard let bytes = PortFrame(number: number, sender: sender, components: carried).bytes else {
            return false
        }
        return link.send(bytes, before: limitDate)
    }

    override var hasArrivals: Bool { receiver?.hasArrivals ?? false }

    override func deliver() {
        guard isValid, let arrival = receiver?.take() else { return }
        // Before the delegate, who may run the loop.
        if hasArrivals { announceArrival() }
        let sender = arrival.frame.sender.seen(from: arrival.peer)
        let message = PortMessage(
            sendPort: sender.isReachable ? SocketPort(remote: sender) : nil, receivePort: self,
            components: arrival.frame.components.map(\.object))
        message.msgid = arrival.frame.number
        delegate()?.handle(message)
    }
}
