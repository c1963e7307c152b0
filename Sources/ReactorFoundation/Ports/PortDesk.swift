import Reactor

/// A local port's sockets: the one that listens, and the connections that have come in at it.
///
/// `@unchecked Sendable` is right because all but `owner`, which is a mutex, is touched on the loop's thread alone,
/// which every method sees to.
final class PortDesk: @unchecked Sendable {
    struct Owner {
        weak var receiver: PortReceiver?
    }

    let owner = Mutex(Owner())
    private let loop: RunLoop
    private var listener: Listener?
    private var connections: [ObjectIdentifier: PortConnection] = [:]

    init(_ loop: RunLoop) { self.loop = loop }

    var receiver: PortReceiver? { owner.withLock { $0.receiver } }

    /// Begins to accept.
    func open(_ listener: Listener) throws(Errno) {
        assertHome()
        do throws(Errno) { try loop.add(listener, forMode: .common) } catch {
            listener.close()
            throw error
        }
        self.listener = listener
    }

    func receive(_ connection: Listener.Connection) {
        assertHome()
        let connection = PortConnection(connection, self)
        connections[ObjectIdentifier(connection)] = connection
        connection.open(on: loop)
    }

    func forget(_ connection: PortConnection) {
        assertHome()
        connections[ObjectIdentifier(connection)] = nil
    }

    /// Has those read on that could not because too much was waiting.
    func goOn() {
        assertHome()
        for connection in connections.values { connection.goOn() }
    }

    func close() {
        assertHome()
        listener.take()?.close()
        for connection in connections.values { connection.close() }
    }

    private func assertHome() {
        precondition(loop.isCurrent, "a port's sockets belong to the thread that serves them")
    }
}

/// A connection that messages come in on. It belongs to the thread of its desk's loop.
final class PortConnection: StreamDelegate {
    private static let mostBytes = 65_536

    private let input: InputStream
    private let output: OutputStream
    private let peer: SocketAddress
    private unowned let desk: PortDesk
    private var framer = PortFramer()
    /// Whether there is something to read that has to wait.
    private var isHeldUp = false

    init(_ connection: Listener.Connection, _ desk: PortDesk) {
        (input, output, peer) = (connection.input, connection.output, connection.peer)
        self.desk = desk
    }

    func open(on loop: RunLoop) {
        input.delegate = self
        input.schedule(in: loop, forMode: .common)
        input.open()
    }

    func close() {
        input.close()
        output.close()
        desk.forget(self)
    }

    func goOn() {
        if isHeldUp { read() }
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable: read()
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    private func read() {
        guard let receiver = desk.receiver else { return close() }
        isHeldUp = receiver.isFull
        guard !isHeldUp else { return }
        framer.push(input.read(upTo: Self.mostBytes))
        do throws(PortFrame.Fault) {
            while let frame = try framer.next() {
                receiver.add(PortReceiver.Arrival(frame: frame, peer: peer, byteCount: frame.byteCount))
            }
        } catch {
            close()
        }
    }
}

extension PortFrame {
    /// About how much memory the message takes.
    fileprivate var byteCount: Int {
        components.reduce(64) { sum, component in
            if case .data(let bytes) = component { sum + bytes.count + 32 } else { sum + 64 }
        }
    }
}
