import Reactor

/// Echoes what it reads, and does not read again until it has written everything.
final class Connection: StreamDelegate {
    static let bufferSize = 65536

    private let input: InputStream
    private let output: OutputStream
    private unowned let server: Server
    private var isReadable = false
    private var isWritable = false
    /// A buffer of the connection's own. Nil until a write is first incomplete.
    private var own: UnsafeMutablePointer<UInt8>?
    /// The unwritten bytes in `own`.
    private var rest = 0..<0

    init(_ accepted: Reactor.Connection, of server: Server) {
        self.server = server
        (input, output) = accepted.streams
        for stream in [input, output] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    deinit { own?.deallocate() }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable:
            isReadable = true
            echo()
        case .hasSpaceAvailable:
            isWritable = true
            if rest.isEmpty { echo() } else { writeRest() }
        case .endEncountered, .errorOccurred: end()
        default: break
        }
    }

    private func echo() {
        guard isReadable, isWritable, rest.isEmpty else { return }
        let bytes = own ?? server.buffer
        isReadable = false
        let count = input.read(bytes, maxLength: Self.bufferSize)
        guard count > 0 else { return }
        isWritable = false
        let written = output.write(bytes, maxLength: count)
        if written < count, written >= 0 { save(written..<count, of: bytes) }
    }

    private func save(_ rest: Range<Int>, of bytes: UnsafeMutablePointer<UInt8>) {
        self.rest = rest
        guard own == nil else { return }
        let own = UnsafeMutablePointer<UInt8>.allocate(capacity: Self.bufferSize)
        (own + rest.lowerBound).initialize(from: bytes + rest.lowerBound, count: rest.count)
        self.own = own
    }

    private func writeRest() {
        isWritable = false
        let written = output.write(own! + rest.lowerBound, maxLength: rest.count)
        rest = rest.dropFirst(max(written, 0))
    }

    private func end() {
        input.close()
        output.close()
        server.remove(self)
    }
}
