import Glibc
import Reactor
import SystemPackage

/// A datagram socket of a simulation.
final class SimulatedDatagramSocket {
    let host: Host
    let family: SocketAddress.Family
    let file: UInt64
    private let descriptor: CInt
    /// The address of the real socket.
    let name: SocketAddress
    /// The address that it is bound to.
    var local: SocketAddress?
    var isIPv6Only = false
    var peer: SocketAddress?
    /// Whether no socket has received an earlier datagram.
    var hasBeenRefused = false

    var isOpen: Bool { inodeNumber(of: descriptor) == file }
    /// The address before it is bound.
    var unbound: SocketAddress { family == .ipv4 ? .ipv4Any(port: 0) : .ipv6Any(port: 0) }

    init(
        _ host: Host, _ family: SocketAddress.Family, _ descriptor: FileDescriptor, named name: SocketAddress
    )
        throws(Errno)
    {
        (self.host, self.family, self.descriptor, self.name) = (host, family, descriptor.rawValue, name)
        file = inodeNumber(of: descriptor.rawValue)
        try descriptor.bind(to: name)
    }

    /// Whether it receives what `source` sends to `target`.
    func receives(from source: SocketAddress, at target: SocketAddress) -> Bool {
        guard let local, isOpen else { return false }
        return local.includes(target, isIPv6Only: isIPv6Only) && (peer.map { $0.unmapped == source } ?? true)
    }
}

extension SimulatedNetwork {
    /// As long as a UDP datagram over IPv4 may be.
    private static let longestDatagram = 65_507
    /// How often a full receiver is tried again; a receiver that reads has room at once.
    private static let maximumDeliveryCount = 100

    func datagramSocket(_ family: SocketAddress.Family) throws(Errno) -> FileDescriptor {
        datagramSockets.removeAll { !$0.isOpen }
        let descriptor = try FileDescriptor.socket(.unix, SOCK_DGRAM)
        do throws(Errno) {
            datagramSockets.append(
                try SimulatedDatagramSocket(here, family, descriptor, named: nextName()))
        } catch {
            try? descriptor.close()
            throw error
        }
        return descriptor
    }

    private func socket(_ descriptor: FileDescriptor) throws(Errno) -> SimulatedDatagramSocket {
        let file = inodeNumber(of: descriptor.rawValue)
        guard let socket = datagramSockets.first(where: { $0.file == file }) else { throw .badFileDescriptor }
        return socket
    }

    func bindDatagrams(
        of descriptor: FileDescriptor, to address: SocketAddress, isIPv6Only: Bool = false
    ) throws(Errno) {
        let socket = try socket(descriptor)
        try checkBinding(address, on: socket.host)
        let address = address.port == 0 ? address.with(port: choosePort(on: socket.host)) : address
        let isTaken = datagramSockets.contains { other in
            guard other.host === socket.host, other.isOpen, let local = other.local else { return false }
            return local.includes(address.unmapped, isIPv6Only: other.isIPv6Only)
                || address.includes(local.unmapped, isIPv6Only: isIPv6Only)
        }
        if isTaken { throw .addressInUse }
        (socket.local, socket.isIPv6Only) = (address, isIPv6Only)
    }

    func connectDatagrams(of descriptor: FileDescriptor, to peer: SocketAddress) throws(Errno) {
        let socket = try socket(descriptor)
        let source = try route(from: socket.host, to: peer).source
        if socket.local == nil { try bindDatagrams(of: descriptor, to: source) }
        socket.peer = peer
    }

    func send(_ bytes: RawSpan, from descriptor: FileDescriptor, to address: SocketAddress?) throws(Errno) {
        let socket = try socket(descriptor)
        guard let target = address ?? socket.peer else { throw Errno(rawValue: EDESTADDRREQ) }
        if bytes.byteCount > Self.longestDatagram { throw .messageTooLong }
        if exchange(&socket.hasBeenRefused, with: false) { throw .connectionRefused }
        let route = try route(from: socket.host, to: target)
        if socket.local == nil { try bindDatagrams(of: descriptor, to: socket.unbound) }
        let source = socket.local!.isAny ? route.source.with(port: socket.local!.port!) : socket.local!
        datagramCount += 1
        let number = datagramCount
        let count = bytes.byteCount
        note("datagram \(number) from \(source) to \(target), \(count) bytes")
        let link = link(socket.host, route.host)
        guard !isPartitioned(socket.host, route.host), !occurs(.loss, link.loss, .datagram(number)) else {
            return
        }
        var copy: [UInt8] = []
        copy.append(bytes)
        var generator = plan.generator(.datagram, UInt64(number))
        for _ in 0..<(occurs(.duplication, link.duplication, .datagram(number)) ? 2 : 1) {
            after(link.latency.random(&generator)) { [weak self, copy] in
                self?.deliver(copy, number, from: socket, source.unmapped, to: (route.host, target.unmapped))
            }
        }
    }

    private func deliver(
        _ bytes: [UInt8], _ number: Int, from sender: SimulatedDatagramSocket, _ source: SocketAddress,
        to target: (host: Host, address: SocketAddress), tryCount: Int = 0
    ) {
        let receiver = datagramSockets.last {
            $0.host === target.host && $0.receives(from: source, at: target.address)
        }
        guard let receiver else {
            note("datagram \(number) has no receiver")
            if sender.peer != nil { sender.hasBeenRefused = true }
            return
        }
        do throws(Errno) {
            let source = receiver.family == .ipv6 ? source.mapped : source
            // Its name tells the receiver the sender's address.
            let real = try FileDescriptor.socket(.unix, SOCK_DGRAM)
            defer { try? real.close() }
            try real.bind(to: nextName(source))
            try bytes.withBytes { (bytes) throws(Errno) in try real.send(bytes, to: receiver.name) }
            note("datagram \(number) arrives")
            jumpClock(.datagram(number))
        } catch .resourceTemporarilyUnavailable where tryCount < Self.maximumDeliveryCount {
            // The kernel queues few datagrams of Unix-domain sockets: the receiver takes those first.
            after(.nanoseconds(1)) { [weak self] in
                self?.deliver(bytes, number, from: sender, source, to: target, tryCount: tryCount + 1)
            }
        } catch {
            note("datagram \(number) is dropped: \(error)")
        }
    }

    func sender(of sender: SocketAddress?) -> SocketAddress? {
        guard let name = sender?.unixAbstractName, name.starts(with: namePrefix.utf8) else { return nil }
        return SocketAddress(
            String(decoding: name.drop { $0 != UInt8(ascii: "|") }.dropFirst(), as: UTF8.self))
    }
}
