import Reactor

/// A local port's sockets: the one that listens, and the connections that have come in at it.
///
/// `@unchecked Sendable` is right because what changes is touched on the loop's thread alone, which every method sees to.
final class PortDesk: @unchecked Sendable {
    /// Where messages go.
    let mail: PortMail
    private let loop: RunLoop
    private var listener: Listener?
    private var connections: [ObjectIdentifier: PortConnection] = [:]

    init(_ loop: RunLoop, _ mail: PortMail) {
        self.loop = loop
        self.mail = mail
    }

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
