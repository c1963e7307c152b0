import CReactorLinux
import Glibc
public import SystemPackage

/// A UDP or Unix-domain datagram socket that delivers datagrams to a closure on a run loop's thread.
///
/// ```swift
/// let server = try DatagramSocket(boundTo: .ipv6Any(port: 7)) { socket, bytes, datagram in
///     guard let sender = datagram.sender else { return }
///     _ = try? socket.send(bytes, to: sender)
/// } events: { _, event in
///     print(event)
/// }
/// try RunLoop.current.add(server, forMode: .default)
/// ```
///
/// A pass of the loop receives up to sixteen datagrams with one system call, into a buffer that is reused,
/// and delivers them one by one as borrowed bytes. The closures are called and released on the loop's thread,
/// and may capture anything. They may close the socket: no closure is called after that, and datagrams that
/// were received are dropped. They are never called inside themselves, even if the loop runs nested; the
/// remaining datagrams wait. If the socket leaves its mode meanwhile, they are delivered in the next mode
/// that it is in.
///
/// The loop keeps the socket alive until it is closed. A socket in no loop is closed when the last reference
/// to it is released, and the end of a loop's thread closes the sockets in that loop. A socket and its loop
/// belong to one thread; every method traps on another.
///
/// A task sends and receives with ``RunLoop/datagrams(boundTo:options:inModes:)``.
///
/// See udp(7), unix(7) and recvmmsg(2). SIGPIPE is never raised.
public final class DatagramSocket: EventSource {
    /// What is known of a datagram besides its bytes.
    public struct Datagram: Sendable, Hashable {
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
    public struct Message: Sendable, Hashable {
        /// The bytes, at most ``Options/datagramLimit``.
        public let bytes: [UInt8]
        /// What is known of it besides.
        public let datagram: Datagram
    }

    /// An event other than a datagram.
    public enum Event: Sendable, Hashable {
        /// There is room again after a ``DatagramSocket/send(_:to:)-([UInt8],_)`` that found none.
        case hasSpaceAvailable
        /// The kernel has reported an error, such as `Errno.connectionRefused` if no socket receives at the
        /// connected address. The socket goes on.
        case errorOccurred(IOError)
    }

    /// Receives a datagram's bytes, borrowed until it returns.
    public typealias Receiver = (DatagramSocket, RawSpan, Datagram) -> Void

    /// Receives an event.
    public typealias EventHandler = (DatagramSocket, Event) -> Void

    private struct Handlers {
        let receive: Receiver
        let event: EventHandler
    }

    let family: SocketAddress.Family
    private let options: Options
    /// Nil once the socket is closed.
    private var handlers: Handlers?
    private var batch: DatagramBatch?
    /// Whether a send has found no room.
    private var wantsSpace = false
    /// Set when the socket leaves a mode: the remaining datagrams stay for the next one.
    private var isInterrupted = false
    private var file: SocketFile?

    /// Creates a socket that receives what is sent to `address`.
    ///
    /// - Parameters:
    ///   - address: The kernel chooses the port if it is 0; see ``localAddress``. The file that a Unix-domain
    ///     path creates is removed when the socket is closed. An existing file is not replaced.
    ///   - options: Options to set before binding.
    ///   - receive: Called for each datagram.
    ///   - events: Called when there is room again, and for errors that no call has returned.
    /// - Throws: ``IOError`` with an error of socket(2), setsockopt(2) or bind(2): `Errno.addressInUse`,
    ///   `Errno.addressNotAvailable`, `Errno.permissionDenied`, …
    public convenience init(
        boundTo address: SocketAddress, options: Options = Options(), receive: @escaping Receiver,
        events: @escaping EventHandler
    ) throws(IOError) {
        try self.init(address.family, options, Handlers(receive: receive, event: events), for: .bind, address)
        try bind(to: address)
    }

    /// Creates a socket that sends to `peer`, and receives only from there.
    ///
    /// - Parameters:
    ///   - peer: The address that ``send(_:)-([UInt8])`` sends to.
    ///   - address: The socket's own address; nil for the kernel's choice. A Unix-domain socket without an
    ///     address receives no answers; with ``SocketAddress/unixUnnamed`` the kernel chooses one.
    ///   - options: Options to set before binding.
    ///   - receive: Called for each datagram.
    ///   - events: Called when there is room again, and for errors that no call has returned.
    /// - Throws: ``IOError`` with an error of socket(2), setsockopt(2), bind(2) or connect(2):
    ///   `Errno.networkUnreachable`, `Errno.connectionRefused` (Unix-domain), `Errno.noSuchFileOrDirectory`,
    ///   …
    public convenience init(
        connectedTo peer: SocketAddress, boundTo address: SocketAddress? = nil, options: Options = Options(),
        receive: @escaping Receiver, events: @escaping EventHandler
    ) throws(IOError) {
        try self.init(peer.family, options, Handlers(receive: receive, event: events), for: .connect, peer)
        if let address { try bind(to: address) }
        try attempt(.connect, "\(peer)") { () throws(Errno) in
            try FileDescriptor(rawValue: number).connect(to: peer)
        }
    }

    /// Takes ownership of an existing datagram socket, such as one of a pair or an inherited one.
    ///
    /// - Parameters:
    ///   - descriptor: The socket, which is closed even if this fails. It may be blocking.
    ///   - options: Options to set.
    ///   - receive: Called for each datagram.
    ///   - events: Called when there is room again, and for errors that no call has returned.
    /// - Throws: ``IOError`` with `Errno.notSocket`, `Errno.badFileDescriptor`, or
    ///   `Errno.protocolWrongTypeForSocket` for a socket that is not a datagram socket.
    public convenience init(
        descriptor: FileDescriptor, options: Options = Options(), receive: @escaping Receiver,
        events: @escaping EventHandler
    ) throws(IOError) {
        let subject = descriptorName(descriptor.rawValue)
        try self.init(descriptor, options, Handlers(receive: receive, event: events), for: .bind, subject)
    }

    private convenience init(
        _ family: SocketAddress.Family, _ options: Options, _ handlers: Handlers,
        for operation: IOError.Operation, _ address: SocketAddress
    ) throws(IOError) {
        let descriptor = try attempt(operation, "\(address)") { () throws(Errno) in
            try FileDescriptor.socket(family, SOCK_DGRAM)
        }
        try self.init(descriptor, options, handlers, for: operation, "\(address)")
    }

    /// Takes ownership of `descriptor`, and closes it if this fails.
    private init(
        _ descriptor: FileDescriptor, _ options: Options, _ handlers: Handlers,
        for operation: IOError.Operation, _ subject: @autoclosure () -> String
    ) throws(IOError) {
        require(options.datagramLimit > 0, "DatagramSocket.Options.datagramLimit must be positive.")
        require(
            0...Options.mostDescriptors ~= options.descriptorLimit,
            "DatagramSocket.Options.descriptorLimit must be in 0...\(Options.mostDescriptors).")
        self.options = options
        do throws(Errno) {
            family = try SocketAddress.local(of: descriptor).family
            try options.apply(to: descriptor, family)
            try SystemCall.make { fcntl(descriptor.rawValue, F_SETFD, FD_CLOEXEC) }
        } catch {
            _ = Glibc.close(descriptor.rawValue)
            throw IOError(operation, subject(), error)
        }
        self.handlers = handlers
        super.init(descriptor.rawValue, for: .readable)
    }

    deinit { release() }

    private func bind(to address: SocketAddress) throws(IOError) {
        try attempt(.bind, "\(address)") { () throws(Errno) in
            try FileDescriptor(rawValue: number).bind(to: address)
        }
        file = address.unixPath.flatMap { SocketFile($0) }
    }

    // MARK: Its state

    /// The descriptor, for options that this type does not offer. The socket owns it: do not close it.
    ///
    /// - Throws: `Errno.badFileDescriptor` once the socket is closed.
    public var descriptor: FileDescriptor { get throws(Errno) { try openDescriptor } }

    /// The socket's own address, as completed by the kernel; getsockname(2).
    ///
    /// - Throws: `Errno.badFileDescriptor` once the socket is closed.
    public var localAddress: SocketAddress {
        get throws(Errno) { try SocketAddress.local(of: openDescriptor) }
    }

    /// The address that the socket is connected to; getpeername(2).
    ///
    /// - Throws: `Errno.socketNotConnected`; `Errno.badFileDescriptor` once the socket is closed.
    public var peerAddress: SocketAddress {
        get throws(Errno) { try SocketAddress.peer(of: openDescriptor) }
    }

    /// Removes the socket from its loop, closes it, and releases its closures. No closure is called after
    /// this. The file of a Unix-domain path is removed.
    public func close() {
        end()
        release()
    }

    var openDescriptor: FileDescriptor {
        get throws(Errno) {
            requireLoopThread()
            guard handlers != nil else { throw .badFileDescriptor }
            return FileDescriptor(rawValue: number)
        }
    }

    private func release() {
        guard let dropped = handlers.take() else { return }
        _ = Glibc.close(number)
        file?.remove()
        batch = nil
        withExtendedLifetime(dropped) {}
    }

    // MARK: On the loop's thread

    override func prepareToJoin() throws(Errno) {
        if batch == nil { batch = try DatagramBatch(options) }
    }

    override func left(_ mode: RunLoop.Mode) { isInterrupted = true }

    override func ended() { release() }

    override var noun: String { "datagram socket of \(descriptorName(number))" }

    override var kind: String { "datagram socket" }

    override var silence: String { "no datagram has arrived" }

    override func serve(_ readiness: Readiness) {
        isHandled = deliver(readiness)
        guard !isEnded else { return }
        // Where the kernel has no memory for it, the next pass tries again.
        try? updateInterest()
        if let batch, !batch.isEmpty { markReady() }
    }

    /// Delivers datagrams and events. Returns whether a closure was called.
    private func deliver(_ readiness: Readiness) -> Bool {
        guard let batch, let handlers else { return false }
        isInterrupted = false
        var isHandled = false
        do throws(Errno) {
            if batch.isEmpty, readiness.contains(.readable) {
                _ = try batch.receive(from: FileDescriptor(rawValue: number))
            }
        } catch {
            isHandled = true
            handlers.event(self, .errorOccurred(IOError(.receive, subject, error, label: label)))
        }
        while !isEnded, !isInterrupted, !batch.isEmpty {
            isHandled = true
            batch.takeNext { bytes, datagram in handlers.receive(self, bytes, datagram) }
        }
        if !isEnded, !isInterrupted, wantsSpace, readiness.contains(.writable) {
            isHandled = true
            wantsSpace = false
            handlers.event(self, .hasSpaceAvailable)
        }
        return isHandled
    }

    /// Receives a datagram, for a socket that is in no loop; nil if none is pending.
    func receiveMessage() throws(Errno) -> Message? {
        let descriptor = try openDescriptor
        try prepareToJoin()
        guard let batch else { return nil }
        if batch.isEmpty, try !batch.receive(from: descriptor) { return nil }
        var message: Message?
        batch.takeNext { bytes, datagram in
            var copy: [UInt8] = []
            copy.append(bytes)
            message = Message(bytes: copy, datagram: datagram)
        }
        return message
    }

    /// The peer's address, or the socket's own if it is not connected.
    var subject: String {
        let address = (try? peerAddress) ?? (try? localAddress)
        return address.map { "\($0)" } ?? descriptorName(number)
    }

    private func updateInterest() throws(Errno) {
        try setInterest(wantsSpace ? [.readable, .writable] : .readable)
    }
}

// MARK: - Sending

extension DatagramSocket {
    /// Sends a datagram to `address` without blocking; sendto(2).
    ///
    /// - Returns: Whether the kernel has accepted it. If its buffer is full, it has not, and
    ///   ``Event/hasSpaceAvailable`` is delivered once there is room, while the socket is in a loop.
    /// - Throws: An error of sendto(2): `Errno.messageTooLong`, `Errno.networkUnreachable`,
    ///   `Errno.permissionDenied` for a broadcast without ``Options/allowsBroadcast``,
    ///   `Errno.badFileDescriptor` once the socket is closed. On a connected socket also the error that an
    ///   earlier datagram has caused; then this one was not sent. `Errno.resourceTemporarilyUnavailable` if a
    ///   Unix-domain receiver that the socket is not connected to has no room: the kernel does not report
    ///   when it has.
    public func send(_ bytes: RawSpan, to address: SocketAddress) throws(Errno) -> Bool {
        try send(bytes, toward: address)
    }

    /// Sends a datagram to the connected address, like ``send(_:to:)-([UInt8],_)``.
    ///
    /// - Throws: `Errno.addressRequired` or `Errno.socketNotConnected` if the socket is not connected, or an
    ///   error of ``send(_:to:)-([UInt8],_)``.
    public func send(_ bytes: RawSpan) throws(Errno) -> Bool { try send(bytes, toward: nil) }

    /// Sends a datagram to `address`, like ``send(_:to:)-([UInt8],_)``.
    public func send(_ bytes: [UInt8], to address: SocketAddress) throws(Errno) -> Bool {
        try bytes.withBytes { (bytes) throws(Errno) in try send(bytes, toward: address) }
    }

    /// Sends a datagram to the connected address, like ``send(_:)-([UInt8])``.
    public func send(_ bytes: [UInt8]) throws(Errno) -> Bool {
        try bytes.withBytes { (bytes) throws(Errno) in try send(bytes, toward: nil) }
    }

    /// Sends a text's UTF-8 to `address`, like ``send(_:to:)-([UInt8],_)``.
    public func send(_ text: String, to address: SocketAddress) throws(Errno) -> Bool {
        try send(Array(text.utf8), to: address)
    }

    /// Sends a text's UTF-8 to the connected address, like ``send(_:)-([UInt8])``.
    public func send(_ text: String) throws(Errno) -> Bool { try send(Array(text.utf8)) }

    /// Sends a datagram with descriptors over a Unix-domain socket, like ``send(_:to:)-([UInt8],_)``.
    ///
    /// The receiver gets duplicates, if its ``Options/descriptorLimit`` allows, and the kernel closes those beyond: see
    /// ``Datagram/hasLostDescriptors``.
    ///
    /// - Parameters:
    ///   - bytes: The datagram.
    ///   - address: The receiver; nil for the connected address.
    ///   - descriptors: Open descriptors, which stay the caller's.
    /// - Throws: Also `Errno.invalidArgument` for a socket of another family or more than 253 descriptors, and
    ///   `Errno(rawValue: ETOOMANYREFS)` if too many are under way.
    public func send(
        _ bytes: [UInt8], to address: SocketAddress? = nil, descriptors: [FileDescriptor]
    ) throws(Errno) -> Bool {
        guard descriptors.isEmpty || family == .unix else { throw .invalidArgument }
        return try bytes.withBytes { (bytes) throws(Errno) in
            try send(bytes, toward: address, descriptors.map(\.rawValue))
        }
    }

    private func send(
        _ bytes: RawSpan, toward address: SocketAddress?, _ descriptors: [CInt] = []
    ) throws(Errno) -> Bool {
        let number = try openDescriptor.rawValue
        let raw = address?.raw ?? reactor_address()
        do throws(Errno) {
            try SystemCall.make {
                bytes.withAddress { start, count in
                    if descriptors.isEmpty { return unsafe reactor_send_datagram(number, start, count, raw) }
                    return unsafe reactor_send_descriptors(
                        number, start, count, raw, descriptors, descriptors.count)
                }
            }
            return true
        } catch .resourceTemporarilyUnavailable {
            // If this socket is writable, it is the Unix-domain receiver that is full.
            let isWritable = (try? SystemCall.poll(number, for: POLLOUT)) ?? 0 != 0
            if isWritable, address?.family == .unix { throw .resourceTemporarilyUnavailable }
            wantsSpace = true
            try updateInterest()
            return false
        }
    }
}

// MARK: - Receiving

/// Datagrams that were received with one system call, to be delivered one by one. The buffer is reused:
/// receiving allocates nothing.
///
/// `@safe`: the storage is this object's alone, and datagrams are only read below the count that was received.
@safe
private final class DatagramBatch {
    /// The limit of datagrams that one system call receives. Measured: with sixteen, each costs a quarter
    /// less than alone; more gain little, and delay the loop's other items.
    private static let capacity = 16
    /// The limit of the buffer in bytes, unless a single datagram needs more.
    private static let memoryLimit = 1 << 20

    private let storage: OpaquePointer
    private var next: UInt32 = 0
    private var count: UInt32 = 0

    init(_ options: DatagramSocket.Options) throws(Errno) {
        let capacity = min(Self.capacity, max(1, Self.memoryLimit / options.datagramLimit))
        let control = reactor_control_size(UInt32(options.descriptorLimit), options.receivesCredentials)
        guard let storage = unsafe reactor_datagrams_make(UInt32(capacity), options.datagramLimit, control)
        else { throw .noMemory }
        unsafe self.storage = storage
    }

    deinit {
        while !isEmpty { takeNext { for descriptor in $1.descriptors { _ = close(descriptor.rawValue) } } }
        unsafe reactor_datagrams_free(storage)
    }

    var isEmpty: Bool { next == count }

    /// Receives pending datagrams; false if there are none.
    func receive(from descriptor: FileDescriptor) throws(Errno) -> Bool {
        do throws(Errno) {
            (next, count) = (0, 0)
            count = UInt32(
                try SystemCall.make { unsafe reactor_datagrams_receive(storage, descriptor.rawValue) })
            return count > 0
        } catch .resourceTemporarilyUnavailable {
            return false
        }
    }

    /// Calls `body` with the next datagram and its bytes.
    func takeNext(_ body: (RawSpan, DatagramSocket.Datagram) -> Void) {
        let raw = unsafe reactor_datagrams_at(storage, next)
        next += 1
        unsafe body(
            UnsafeRawBufferPointer(start: raw.bytes, count: raw.count).bytes,
            DatagramSocket.Datagram(
                sender: SocketAddress(raw.sender), byteCount: raw.length, isTruncated: raw.count < raw.length,
                credentials: PeerCredentials(raw.credentials),
                descriptors: raw.descriptor_count == 0
                    ? []
                    : UnsafeBufferPointer(start: raw.descriptors, count: raw.descriptor_count)
                        .map { FileDescriptor(rawValue: $0) },
                hasLostDescriptors: raw.has_lost_descriptors)
        )
    }
}
