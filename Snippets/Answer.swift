import Dispatch
import Reactor

// A server that replies to each line with its length. Lines are parsed on a queue; replies are written on the loop, in
// order. All clients together have at most 4 MiB of unprocessed input. While a client does not read its replies, the
// server does not read from it.
final class Session: StreamDelegate {
    private static let queue = DispatchQueue(label: "lines", attributes: .concurrent)
    private static let limits = HandoffLimits(
        chunkSize: 16_384, bytesInFlight: 16_384, budget: ByteBudget(limit: 4 << 20))

    private let output: OutputStream
    private var replies: Mailbox<String?>!
    private var reader: LineReader<Void>!
    private var pending: [UInt8] = []
    private var hasSpace = false
    private var isAtEnd = false

    init(_ connection: Connection) {
        output = connection.streams.output
        output.delegate = self
        output.schedule(in: .current, forMode: .default)
        output.open()
        // The mailbox retains the session until it is closed.
        let replies = Mailbox<String?> { _, reply in self.enqueue(reply) }
        self.replies = replies
        let input = connection.streams.input
        reader = LineReader(input, into: (), on: Self.queue, limits: Self.limits) { _, line, _ in
            replies.post("\(line.byteCount)\n")
        }
        reader.start { _ in replies.post(nil) }  // after the last reply
    }

    private func enqueue(_ reply: String?) {
        if let reply { pending += reply.utf8 } else { isAtEnd = true }
        write()
    }

    private func write() {
        if hasSpace, !pending.isEmpty {
            hasSpace = false
            let accepted = output.write(pending.prefix(16_384))
            pending.removeFirst(accepted)
        }
        if pending.count > 65_536 { reader.suspend() } else { reader.resume() }
        if isAtEnd, pending.isEmpty { close() }
    }

    private func close() {
        reader.cancel()
        output.close()
        replies.close()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasSpaceAvailable:
            hasSpace = true
            write()
        case .errorOccurred: close()
        default: break
        }
    }
}

let listener = try Listener(.ipv6Any(port: 7009)) { _, connection in
    _ = Session(connection)
} acceptErrors: { _, error in
    print(error)
}
try RunLoop.current.add(listener, forMode: .default)
RunLoop.current.run(in: .default)
