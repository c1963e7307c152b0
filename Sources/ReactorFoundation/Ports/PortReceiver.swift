import Reactor

/// What listens for a local port, and keeps the messages that have come in until a loop delivers them.
///
/// Its sockets are served by a thread of this module's, so that the port may be in any loops, or in none.
final class PortReceiver: Sendable {
    /// A message, and who it is really from.
    struct Arrival {
        let frame: PortFrame
        let peer: SocketAddress
        let byteCount: Int
    }

    private struct Mail {
        var arrivals: [Arrival] = []
        /// Where in `arrivals` the first is that waits.
        var first = 0
        var byteCount = 0
        var isOpen = true
        var bell: (@Sendable () -> Void)?

        mutating func take() -> Arrival? {
            guard first < arrivals.count else { return nil }
            let arrival = arrivals[first]
            first += 1
            byteCount -= arrival.byteCount
            if first == arrivals.count { (arrivals, first) = ([], 0) }
            return arrival
        }
    }

    /// With so many bytes waiting, no more are read.
    private static let mostWaitingBytes = 1 << 20

    let address: SocketAddress
    let descriptor: Int32
    private let loop: RunLoop
    private let desk: PortDesk
    private let mail = Mutex(Mail())

    /// Listens at `address`.
    convenience init(at address: SocketAddress) throws(Errno) {
        try self.init { (handler) throws(Errno) in try Listener(address, handler: handler) }
    }

    /// Takes over a socket that listens.
    convenience init(_ descriptor: FileDescriptor) throws(Errno) {
        try self.init { (handler) throws(Errno) in try Listener(descriptor: descriptor, handler: handler) }
    }

    private init(_ listen: @escaping @Sendable (@escaping Listener.Handler) throws(Errno) -> Listener)
        throws(Errno)
    {
        loop = try ResidentThread.ports.runLoop()
        let desk = PortDesk(loop)
        self.desk = desk
        (address, descriptor) = try loop.performAndWait { () throws(Errno) in
            let listener = try listen { _, connection in desk.receive(connection) }
            try desk.open(listener)
            return (listener.localAddress, listener.descriptor.rawValue)
        }
        desk.owner.withLock { $0.receiver = self }
    }

    deinit { close() }

    /// Whom to tell of messages.
    func setBell(_ bell: @escaping @Sendable () -> Void) {
        let hasArrivals = mail.withLock { mail in
            mail.bell = bell
            return mail.first < mail.arrivals.count
        }
        if hasArrivals { bell() }
    }

    /// Closes the sockets, and forgets what nobody has taken.
    func close() {
        let wasOpen = mail.withLock { mail in
            defer { mail = Mail(isOpen: false) }
            return mail.isOpen
        }
        guard wasOpen else { return }
        loop.performAndWait { [desk] in desk.close() }
    }

    // MARK: Messages

    var hasArrivals: Bool { mail.withLock { $0.first < $0.arrivals.count } }

    /// Whether enough is waiting to be taken.
    var isFull: Bool { mail.withLock { $0.byteCount >= Self.mostWaitingBytes } }

    func add(_ arrival: Arrival) {
        let bell = mail.withLock { mail -> (@Sendable () -> Void)? in
            guard mail.isOpen else { return nil }
            mail.arrivals.append(arrival)
            mail.byteCount += arrival.byteCount
            return mail.bell
        }
        bell?()
    }

    /// The first message that waits.
    func take() -> Arrival? {
        let (arrival, hasRoomAgain) = mail.withLock { mail in
            let wasFull = mail.byteCount >= Self.mostWaitingBytes
            let arrival = mail.take()
            return (arrival, wasFull && mail.byteCount < Self.mostWaitingBytes)
        }
        if hasRoomAgain { loop.perform { [desk] in desk.goOn() } }
        return arrival
    }
}
