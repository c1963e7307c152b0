import Reactor

/// A connection whose bytes are sent back.
///
/// The session reads only when the write buffer has space for the bytes. A client that does not receive its echo
/// therefore uses no more memory than the write buffer and the kernel's socket buffers.
final class EchoSession: StreamDelegate {
    private static let writeBufferSize = 65_536
    /// At each space event, three quarters of the write buffer are free: more than a chunk.
    private static let chunkSize = 16_384

    private(set) var byteCount = 0
    private(set) var messageCount = 0

    private let input: InputStream
    private let output: OutputStream
    private let onClose: (EchoSession) -> Void
    private var hasBytes = false
    private var hasSpace = false
    private var isClosed = false

    init(_ connection: Connection, onClose: @escaping (EchoSession) -> Void) {
        (input, output) = (connection.streams.input, connection.streams.output)
        output.writeBufferSize = Self.writeBufferSize
        self.onClose = onClose
    }

    func start() {
        for stream in [input, output] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .common)
            stream.open()
        }
    }

    /// Closes the connection. Written bytes are still sent.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        input.close()
        output.close()
        onClose(self)
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable:
            hasBytes = true
            echo()
        case .hasSpaceAvailable:
            hasSpace = true
            echo()
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    private func echo() {
        guard hasBytes, hasSpace else { return }
        hasBytes = false
        let bytes = input.read(upTo: Self.chunkSize)
        guard !bytes.isEmpty else { return }  // the end, whose event follows
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
