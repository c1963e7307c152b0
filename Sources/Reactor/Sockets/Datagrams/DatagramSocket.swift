import Glibc
public import SystemPackage

/// A UDP or Unix-domain datagram socket that delivers datagrams to a closure on a run loop's thread.
///
/// ```swift
/// let server = try DatagramSocket(boundTo: .ipv6Any(port: 7)) { socket, bytes, metadata in
///     guard let sender = metadata.sender else { return }
///     _ = try? socket.send(bytes, to: sender)
/// } events: { _, event in
///     print(event)
/// }
/// try RunLoop.current.add(server, forMode: .default)
/// ```
///
/// A pass of the loop receives up to sixteen datagrams with one system call, into a buffer that is reused, and delivers them
/// one by one as borrowed bytes. The closures are called and released on the loop's thread, and may capture anything. They may
/// close the socket: no closure is called after that, and datagrams that were received are dropped. They are never called
/// inside themselves, even if the loop runs nested; the remaining datagrams wait. If the socket leaves its mode meanwhile, they
/// are delivered in the next mode that it is in.
///
/// The loop keeps the socket alive until it is closed. A socket in no loop is closed when the last reference to it is released,
/// and the end of a loop's thread closes the sockets in that loop. A socket and its loop belong to one thread; while it is
/// in a loop, every method traps on another.
///
/// In a task, use ``RunLoop/datagrams(boundTo:options:inModes:)``.
///
/// See udp(7), unix(7) and recvmmsg(2). SIGPIPE is never raised.
public final class DatagramSocket: EventSource {
    /// The metadata of a datagram.
    public struct Metadata: Sendable, Hashable {
        /// The sender's address; nil for a Unix-domain socket without a name.
        public let sender: SocketAddress?
        /// The length of the datagram, of which ``Options/datagramLimit`` bytes are delivered.
        public let byteCount: Int
        /// Whether it is longer than that.
        public let isTruncated: Bool
        /// The process that has sent it, according to the kernel; nil without ``Options/receivesCredentials``. For a
        /// datagram that was sent before that option was set, the process is 0 and the user the kernel's overflow user.
        public let credentials: PeerCredentials?
        /// The descriptors that came with it, up to ``Options/descriptorLimit``, which are closed on exec. They
        /// belong to the receiver, which closes them.
        public let descriptors: [FileDescriptor]
        /// Whether the kernel has closed further descriptors that came with it (`MSG_CTRUNC`): they were more than
        /// ``Options/descriptorLimit``, or this process had too many open files.
        public let hasLostDescriptors: Bool
    }

    /// A datagram with its bytes.
    public struct Datagram: Sendable, Hashable {
        /// The bytes, at most ``Options/datagramLimit``.
        public let bytes: [UInt8]
        /// Its metadata.
        public let metadata: Metadata
    }

    /// An event other than a datagram.
    @nonexhaustive public enum Event: Sendable, Hashable {
        /// There is room again after a ``DatagramSocket/send(_:to:descriptors:)-([UInt8],_,_)`` that found none.
        case hasSpaceAvailable
        /// The kernel has reported an error, such as `Errno.connectionRefused` if no socket receives at the connected address.
        /// The socket stays open.
        case errorOccurred(IOError)
    }

    package typealias Receiver = (DatagramSocket, RawSpan, Metadata) -> Void
    package typealias EventHandler = (DatagramSocket, Event) -> Void

    let family: SocketAddress.Family
    private let options: Options
    /// Nil once the socket is closed.
    private var handlers: (receive: Receiver, event: EventHandler)?
    private var batch: DatagramBatch?
    private let owner: DescriptorOwner
    /// Whether a send has found no room.
    private var wantsSpace = false
    /// Set when the socket leaves a mode: the remaining datagrams stay for the next one.
    private var isInterrupted = false
    private var file: SocketFile?

    /// Creates a socket that receives what is sent to `address`.
    ///
    /// - Parameters:
    ///   - address: The kernel chooses the port if it is 0; see ``localAddress``. The file that a Unix-domain path creates is
    ///     removed when the socket is closed. An existing file is not replaced.
    ///   - options: Options to set before binding.
    ///   - receive: Called for each datagram, with its bytes, borrowed until it returns.
    ///   - events: Called when there is room again, and for errors that no call has returned.
    /// - Throws: ``IOError`` with an error of socket(2), setsockopt(2) or bind(2): `Errno.addressInUse`,
    ///   `Errno.addressNotAvailable`, `Errno.permissionDenied`, …
    public convenience init(
        boundTo address: SocketAddress, options: Options = Options(),
        receive: @escaping (DatagramSocket, RawSpan, Metadata) -> Void,
        events: @escaping (DatagramSocket, Event) -> Void
    ) throws(IOError) {
        try self.init(for: .bind, "\(address)", options, (receive, events)) { () throws(Errno) in
            try FileDescriptor.datagramSocket(address.family)
        }
        try bind(to: address)
    }

    /// Creates a socket that sends to `peer`, and receives only from there.
    ///
    /// - Parameters:
    ///   - peer: The address that ``send(_:to:descriptors:)-([UInt8],_,_)`` sends to without one.
    ///   - address: The socket's own address; nil for the kernel's choice. A Unix-domain socket without an address receives no
    ///     answers; with ``SocketAddress/unixUnnamed`` the kernel chooses one.
    ///   - options: Options to set before binding.
    ///   - receive: Called for each datagram, with its bytes, borrowed until it returns.
    ///   - events: Called when there is room again, and for errors that no call has returned.
    /// - Throws: ``IOError`` with an error of socket(2), setsockopt(2), bind(2) or connect(2): `Errno.networkUnreachable`,
    ///   `Errno.connectionRefused` (Unix-domain), `Errno.noSuchFileOrDirectory`, …
    public convenience init(
        connectedTo peer: SocketAddress, boundTo address: SocketAddress? = nil, options: Options = Options(),
        receive: @escaping (DatagramSocket, RawSpan, Metadata) -> Void,
        events: @escaping (DatagramSocket, Event) -> Void
    ) throws(IOError) {
        try self.init(for: .connect, "\(peer)", options, (receive, events)) { () throws(Errno) in
            try FileDescriptor.datagramSocket(peer.family)
        }
        if let address { try bind(to: address) }
        try attempt(.connect, "\(peer)") { () throws(Errno) in
            if let network = simulation {
                try network.connectDatagrams(of: openDescriptor, to: peer)
            } else {
                try openDescriptor.connect(to: peer)
            }
            lastAddress = try SocketAddress.local(of: openDescriptor)
        }
    }

    /// Takes ownership of an existing datagram socket, such as one of a pair or an inherited one.
    ///
    /// - Parameters:
    ///   - descriptor: The socket, which is closed even if this fails. It may be blocking.
    ///   - options: Options to set on it.
    ///   - receive: Called for each datagram, with its bytes, borrowed until it returns.
    ///   - events: Called when there is room again, and for errors that no call has returned.
    /// - Throws: ``IOError`` with `Errno.notSocket`, `Errno.badFileDescriptor`, or `Errno.protocolWrongTypeForSocket` for a
    ///   socket that is not a datagram socket.
    public convenience init(
        descriptor: FileDescriptor, options: Options = Options(),
        receive: @escaping (DatagramSocket, RawSpan, Metadata) -> Void,
        events: @escaping (DatagramSocket, Event) -> Void
    ) throws(IOError) {
        let subject = descriptorName(descriptor.rawValue)
        try self.init(for: .bind, subject, options, (receive, events)) { descriptor }
    }

    /// Takes ownership of the descriptor that `open` returns, and closes it if this fails.
    private init(
        for operation: IOError.Operation, _ subject: @autoclosure () -> String, _ options: Options,
        _ handlers: (Receiver, EventHandler), _ open: () throws(Errno) -> FileDescriptor
    ) throws(IOError) {
        options.check()
        let descriptor = try attempt(operation, subject(), open)
        do throws(Errno) {
            lastAddress = try SocketAddress.local(of: descriptor)
            family = lastAddress.family
            try options.apply(to: descriptor, family)
            try SystemCall.make { fcntl(descriptor.rawValue, F_SETFD, FD_CLOEXEC) }
        } catch {
            _ = Glibc.close(descriptor.rawValue)
            throw IOError(operation, subject(), error)
        }
        (self.options, self.handlers) = (options, handlers)
        owner = DescriptorOwner(of: descriptor.rawValue)
        super.init(descriptor.rawValue, for: .readable)
    }

    deinit { releaseResources() }

    private func bind(to address: SocketAddress) throws(IOError) {
        try attempt(.bind, "\(address)") { () throws(Errno) in
            if let network = simulation {
                try network.bindDatagrams(
                    of: openDescriptor, to: address, isIPv6Only: options.isIPv6Only ?? false)
            } else {
                try openDescriptor.bind(to: address)
            }
            lastAddress = try SocketAddress.local(of: openDescriptor)
        }
        file = address.unixPath.flatMap { SocketFile($0) }
    }

    /// The network of a test that the socket is in; nil for the kernel's.
    var simulation: (any Network)? { family == .unix ? nil : currentTimeSource?.network }

    // MARK: Its state

    /// The descriptor, for options that this type does not offer. It belongs to the socket: nil once that is closed.
    public var descriptor: FileDescriptor? { handlers == nil ? nil : FileDescriptor(rawValue: number) }

    var openDescriptor: FileDescriptor {
        get throws(Errno) {
            requireLoopThread()
            guard let descriptor else { throw .badFileDescriptor }
            return descriptor
        }
    }

    /// The socket's own address, as completed by the kernel: with the port that it has chosen; getsockname(2).
    public var localAddress: SocketAddress {
        if let descriptor, let address = try? SocketAddress.local(of: descriptor) { lastAddress = address }
        return lastAddress
    }

    /// The local address when it was asked for.
    private var lastAddress: SocketAddress

    /// The address that the socket is connected to; getpeername(2). Nil if it is not, or is closed.
    public var peerAddress: SocketAddress? { try? SocketAddress.peer(of: openDescriptor) }

    /// The peer's address, or the socket's own if it is not connected.
    override var subject: String {
        if let peerAddress { return "\(peerAddress)" }
        return localAddress == .unixUnnamed ? descriptorName(number) : "\(localAddress)"
    }

    /// Removes the socket from its loop, closes it, and releases its closures. No closure is called after this. The file of a
    /// Unix-domain path is removed.
    public func close() { cancel() }

    override func releaseResources() {
        guard let dropped = handlers.take() else { return }
        owner.close(number)
        file?.remove()
        batch = nil
        withExtendedLifetime(dropped) {}
    }

    // MARK: Receiving

    /// Receives a datagram, for a socket that is in no loop; nil if none is pending.
    func receiveOne() throws(Errno) -> Datagram? {
        let descriptor = try openDescriptor
        var datagram: Datagram?
        try makeBatch().receive(from: descriptor) { bytes, metadata in
            var copy: [UInt8] = []
            copy.append(bytes)
            datagram = Datagram(bytes: copy, metadata: metadata)
            return false
        }
        return datagram
    }

    private func makeBatch() throws(Errno) -> DatagramBatch {
        if let batch { return batch }
        let batch = try DatagramBatch(options)
        self.batch = batch
        return batch
    }

    // MARK: On the loop's thread

    override var noun: String { "datagram socket of \(descriptorName(number))" }

    override var kind: String { "datagram socket" }

    override var silence: String { "no datagram has arrived" }

    override func prepareToJoin() throws(Errno) { _ = try makeBatch() }

    override func left(_ mode: RunLoop.Mode) { isInterrupted = true }

    override func serve(_ readiness: Readiness) -> Bool {
        guard let batch, let handlers else { return false }
        var isHandled = false
        isInterrupted = false
        do throws(Errno) {
            if readiness.contains(.readable) || !batch.isEmpty {
                try batch.receive(from: FileDescriptor(rawValue: number)) { bytes, metadata in
                    isHandled = true
                    handlers.receive(self, bytes, metadata)
                    return !isEnded && !isInterrupted
                }
            }
        } catch {
            isHandled = true
            handlers.event(self, .errorOccurred(IOError(.receive, subject, error, label: label)))
        }
        if !isEnded, !isInterrupted, wantsSpace, readiness.contains(.writable) {
            isHandled = true
            wantsSpace = false
            handlers.event(self, .hasSpaceAvailable)
        }
        guard !isEnded else { return isHandled }
        // Where the kernel has no memory for it, the next pass tries again.
        try? updateInterest()
        if !batch.isEmpty { markReady() }
        return isHandled
    }

    /// Has ``Event/hasSpaceAvailable`` delivered once there is room.
    func awaitSpace() throws(Errno) {
        wantsSpace = true
        try updateInterest()
    }

    private func updateInterest() throws(Errno) {
        try changeInterest(wantsSpace ? [.readable, .writable] : .readable)
    }
}
