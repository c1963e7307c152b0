import Reactor

/// Sends back to one client what it sends.
///
/// It reads only when there is room to write what it reads: a client that does not take its echo is read no
/// further, and costs no more memory than the write buffer and what the kernel holds.
final class EchoSession: StreamDelegate {
    private static let writeBufferSize = 65_536
    /// Less than the three quarters of the write buffer that are free when the delegate is told of space.
    private static let pieceSize = 16_384

    private(set) var byteCount = 0
    private(set) var messageCount = 0

    private let input: InputStream
    private let output: OutputStream
    private let onEnd: (EchoSession) -> Void
    private var hasBytes = false
    private var hasSpace = false
    private var isOver = false

    init(_ connection: Listener.Connection, onEnd: @escaping (EchoSession) -> Void) {
        (input, output) = (connection.input, connection.output)
        output.writeBufferSize = Self.writeBufferSize
        self.onEnd = onEnd
    }

    func begin() {
        for stream in [input, output] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .common)
            stream.open()
        }
    }

    /// Closes the connection; what has been written is still sent.
    func end() {
        guard !isOver else { return }
        isOver = true
        input.close()
        output.close()
        onEnd(self)
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable:
            hasBytes = true
            echo()
        case .hasSpaceAvailable:
            hasSpace = true
            echo()
        case .endEncountered, .errorOccurred: end()
        default: break
        }
    }

    private func echo() {
        guard hasBytes, hasSpace else { return }
        hasBytes = false
        let bytes = input.read(upTo: Self.pieceSize)
        guard !bytes.isEmpty else { return }  // the end, which is told next
        hasSpace = false
        output.write(bytes)
        byteCount += bytes.count
        messageCount += 1
    }
}

extension EchoSession: Hashable {
    static func == (left: EchoSession, right: EchoSession) -> Bool { left === right }

    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
