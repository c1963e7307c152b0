import Glibc
import SystemPackage

/// A datagram socket's descriptor, and what is called for it.
///
/// Belongs to the descriptor source's closure: whatever ends that one, even the loop's end, closes the descriptor
/// and lets go of the closures.
final class DatagramEndpoint {
    let descriptor: FileDescriptor
    let family: SocketAddress.Family
    /// Set while the socket is in a loop, which is what keeps it alive then.
    var socket: DatagramSocket?
    /// Set when the socket leaves a mode: what has been read and not delivered stays for the next one.
    var isInterrupted = false
    private let datagramLimit: Int
    private var handlers: DatagramSocket.Handlers?
    private var batch: DatagramBatch?
    /// Whether a send has found no room.
    private var wantsSpace = false
    private var boundPath: BoundPath?

    /// Takes `descriptor` over, and closes it if this fails.
    init(
        _ descriptor: FileDescriptor, _ options: DatagramSocket.Options, _ handlers: DatagramSocket.Handlers
    ) throws(Errno) {
        precondition(options.datagramLimit > 0, "a datagram socket needs room for at least one byte")
        self.descriptor = descriptor
        datagramLimit = options.datagramLimit
        do throws(Errno) {
            family = try SocketAddress.local(of: descriptor).family
            try descriptor.prepareForDatagrams(options, family)
        } catch {
            _ = Glibc.close(descriptor.rawValue)
            throw error
        }
        self.handlers = handlers
    }

    deinit { close() }

    var isOpen: Bool { handlers != nil }

    func close() {
        guard let dropped = handlers.take() else { return }
        _ = Glibc.close(descriptor.rawValue)
        boundPath?.remove()
        socket = nil
        withExtendedLifetime(dropped) {}
    }

    func bind(to address: SocketAddress) throws(Errno) {
        try SystemCall.make { unsafe address.withSockAddr { unsafe Glibc.bind(descriptor.rawValue, $0, $1) } }
        boundPath = address.unixPath.flatMap { BoundPath($0) }
    }

    func connect(to address: SocketAddress) throws(Errno) {
        try SystemCall.make {
            unsafe address.withSockAddr { unsafe Glibc.connect(descriptor.rawValue, $0, $1) }
        }
    }

    // MARK: Receiving

    /// What the descriptor has to be watched for.
    var interest: Readiness { wantsSpace ? [.readable, .writable] : .readable }

    /// Whether datagrams have been read that are still to be delivered: the socket has left a mode meanwhile.
    var hasUndelivered: Bool { batch.map { !$0.isEmpty } ?? false }

    /// Makes room for what will be received.
    func prepareToReceive() throws(Errno) {
        if batch == nil { batch = try DatagramBatch(datagramLimit: datagramLimit) }
    }

    /// Delivers what has come in, and tells of room. Returns whether anybody was called.
    func serve(_ readiness: Readiness) -> Bool {
        guard let socket, let batch, let handlers else { return false }
        isInterrupted = false
        var isHandled = false
        do throws(Errno) {
            if batch.isEmpty, readiness.contains(.readable) { _ = try batch.receive(from: descriptor) }
        } catch {
            isHandled = true
            handlers.event(socket, .errorOccurred(error))
        }
        while isOpen, !isInterrupted, !batch.isEmpty {
            isHandled = true
            batch.takeNext { bytes, datagram in handlers.receive(socket, bytes, datagram) }
        }
        if isOpen, !isInterrupted, wantsSpace, readiness.contains(.writable) {
            isHandled = true
            wantsSpace = false
            handlers.event(socket, .hasSpaceAvailable)
        }
        return isHandled
    }

    // MARK: Sending

    /// Sends, without waiting; false if there is no room, and then the next ``interest`` asks for some.
    func send(_ bytes: RawSpan, to address: SocketAddress?) throws(Errno) -> Bool {
        guard isOpen else { throw .badFileDescriptor }
        do throws(Errno) {
            if let address {
                try unsafe address.withSockAddr { (raw, length) throws(Errno) in
                    try unsafe send(bytes, raw, length)
                }
            } else {
                try unsafe send(bytes, nil, 0)
            }
            return true
        } catch .resourceTemporarilyUnavailable {
            guard address?.family != .unix || !descriptor.isWritable else {
                throw .resourceTemporarilyUnavailable
            }
            wantsSpace = true
            return false
        }
    }

    private func send(
        _ bytes: RawSpan, _ address: UnsafePointer<sockaddr>?, _ length: socklen_t
    ) throws(Errno) {
        let flags = CInt(MSG_DONTWAIT) | CInt(MSG_NOSIGNAL)
        _ = try unsafe bytes.withUnsafeBytes { (buffer) throws(Errno) in
            try SystemCall.make {
                unsafe sendto(descriptor.rawValue, buffer.baseAddress, buffer.count, flags, address, length)
            }
        }
    }
}

extension FileDescriptor {
    /// Whether the kernel would tell of room at once: then it is not this socket that is full.
    fileprivate var isWritable: Bool {
        var request = pollfd(fd: rawValue, events: Int16(POLLOUT), revents: 0)
        return unsafe poll(&request, 1, 0) > 0
    }
}
