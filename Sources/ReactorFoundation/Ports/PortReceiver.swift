import Reactor

/// What listens for a local port, and keeps the messages that have come in.
///
/// Its sockets are served by a thread of this module's, so that the port may be in any loops, or in none.
final class PortReceiver: Sendable {
    let address: SocketAddress
    let descriptor: Int32
    private let loop: RunLoop
    private let desk: PortDesk
    private let mail = PortMail()

    /// Listens at `address`.
    convenience init(at address: SocketAddress) throws(Errno) {
        try self.init { (handler) throws(Errno) in try Listener(address, handler: handler) }
    }

    /// Takes over a socket that listens.
    convenience init(_ descriptor: FileDescriptor) throws(Errno) {
        try self.init { (handler) throws(Errno) in try Listener(descriptor: descriptor, handler: handler) }
    }

    private init(
        _ listen: @escaping @Sendable (@escaping Listener.Handler) throws(Errno) -> Listener
    ) throws(Errno) {
        loop = try ResidentThread.ports.runLoop()
        let desk = PortDesk(loop, mail)
        self.desk = desk
        (address, descriptor) = try loop.performAndWait { () throws(Errno) in
            let listener = try listen { _, connection in desk.receive(connection) }
            try desk.open(listener)
            return (listener.localAddress, listener.descriptor.rawValue)
        }
    }

    deinit { close() }

    /// Sets whom to tell of messages, on any thread.
    func setBell(_ bell: @escaping @Sendable () -> Void) { mail.setBell(bell) }

    /// Whether there is a message to take.
    var hasArrivals: Bool { !mail.isEmpty }

    /// The first message that waits.
    func take() -> PortMail.Arrival? {
        let (arrival, hasRoomAgain) = mail.take()
        if hasRoomAgain { loop.perform { [desk] in desk.goOn() } }
        return arrival
    }

    /// Closes the sockets, and forgets what nobody has taken.
    func close() {
        guard mail.close() else { return }
        loop.performAndWait { [desk] in desk.close() }
    }
}
