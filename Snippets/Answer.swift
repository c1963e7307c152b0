import Dispatch
import Reactor

// Answers each line with its length. Lines are cut and looked at on a queue, the answers written on the loop, in
// order. However many clients there are, what has been read of them takes 4 MiB; and one that does not take its
// answers is not read until it does.
final class Session: StreamDelegate {
    private static let queue = DispatchQueue(label: "lines", attributes: .concurrent)
    private static let limits = HandoffLimits(
        chunkSize: 16_384, bytesInFlight: 16_384, budget: ByteBudget(limit: 4 << 20))

    private let output: OutputStream
    private var answers: Mailbox<String?>!
    private var reader: LineReader<Void>!
    private var pending: [UInt8] = []
    private var hasSpace = false
    private var isOver = false

    init(_ connection: Listener.Connection) {
        output = connection.output
        output.delegate = self
        output.schedule(in: .current, forMode: .default)
        output.open()
        // The mailbox and this hold each other until the mailbox is closed.
        let answers = Mailbox<String?> { _, answer in self.take(answer) }
        self.answers = answers
        reader = LineReader(connection.input, into: (), on: Self.queue, options: .init(limits: Self.limits)) {
            _, line, _ in answers.post("\(line.byteCount)\n")
        }
        reader.start { _ in answers.post(nil) }  // comes after all answers
    }

    private func take(_ answer: String?) {
        if let answer { pending += Array(answer.utf8) } else { isOver = true }
        write()
    }

    private func write() {
        if hasSpace, !pending.isEmpty {
            hasSpace = false
            let part = pending.prefix(16_384)
            output.write(Array(part))
            pending.removeFirst(part.count)
        }
        if pending.count > 65_536 { reader.suspend() } else { reader.resume() }
        if isOver, pending.isEmpty { close() }
    }

    private func close() {
        reader.cancel()
        output.close()
        answers.close()
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
} faults: { _, error in
    print(error)
}
try RunLoop.current.add(listener, forMode: .default)
RunLoop.current.run(in: .default)
