import Reactor

/// A connection that messages come in on. It belongs to the thread of its desk's loop.
final class PortConnection: StreamDelegate {
    private static let mostBytes = 65_536

    private let input: InputStream
    private let output: OutputStream
    private let peer: SocketAddress
    /// Keeps this, until it is closed.
    private let desk: PortDesk
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
        isHeldUp = desk.mail.isFull
        guard !isHeldUp else { return }
        framer.push(input.read(upTo: Self.mostBytes))
        do throws(PortFrame.Fault) {
            while let frame = try framer.next() { desk.mail.add(PortMail.Arrival(frame: frame, peer: peer)) }
        } catch {
            close()
        }
    }
}
