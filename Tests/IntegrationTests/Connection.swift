import ReactorFoundation

/// A connection as Cocoa code writes it: a pair of streams on the thread's run loop, with a buffer for each
/// direction.
class Connection: NSObject, StreamDelegate {
    private let port: Int
    private var input: InputStream!
    private var output: OutputStream!
    private var outgoing = Data()
    /// The received bytes that have not been parsed.
    var incoming = Data()
    /// How often the connection has been opened.
    private(set) var openCount = 0
    /// Called after the connection has ended.
    var connectionDidEnd: ((Connection) -> Void)?

    init(port: UInt16) {
        self.port = Int(port)
        super.init()
    }

    deinit { close() }

    func open() {
        (incoming, outgoing) = (Data(), Data())
        var input: InputStream?
        var output: OutputStream?
        Stream.getStreamsToHost(withName: "localhost", port: port, inputStream: &input, outputStream: &output)
        self.input = input
        self.output = output
        for stream in [self.input, self.output] as [Stream] {
            stream.delegate = self
            // Such code sets the level even where it is the default.
            stream.setProperty(
                StreamSocketSecurityLevel.none.rawValue,
                forKey: Stream.PropertyKey(rawValue: "kCFStreamPropertySocketSecurityLevel"))
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    func close() {
        for stream in [input, output] as [Stream?] {
            stream?.delegate = nil
            stream?.close()
            stream?.remove(from: .current, forMode: .default)
        }
    }

    func send(_ data: Data) {
        outgoing.append(data)
        if output.hasSpaceAvailable { flush() }
    }

    /// Parses `incoming`. For subclasses to override.
    func bytesDidArrive() {}

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .openCompleted:
            if aStream == output { openCount += 1 }
        case .hasBytesAvailable:
            read()
        case .hasSpaceAvailable:
            flush()
        case .errorOccurred, .endEncountered:
            close()
            connectionDidEnd?(self)
        default:
            break
        }
    }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = input.read(&buffer, maxLength: buffer.count)
        guard count > 0 else { return }
        incoming.append(contentsOf: buffer[..<count])
        bytesDidArrive()
    }

    private func flush() {
        guard !outgoing.isEmpty else { return }
        let count = outgoing.withUnsafeBytes { bytes in
            output.write(bytes.bindMemory(to: UInt8.self).baseAddress!, maxLength: bytes.count)
        }
        if count > 0 { outgoing = Data(outgoing.dropFirst(count)) }
    }
}

/// Runs the thread's loop until `isDone` returns true. A missing event is caught by the time limit of the
/// test run.
func runLoop(until isDone: () -> Bool) {
    while !isDone(), RunLoop.current.run(mode: .default, before: Deadline.distantFuture) {}
}
