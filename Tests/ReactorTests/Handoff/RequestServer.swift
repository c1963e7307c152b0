import Dispatch
import Reactor
import SystemPackage

/// A server that processes requests, a line each, on a concurrent queue, and writes the answers on its loop.
final class RequestServer {
    /// What passes the requests to the queue.
    enum Kind: CaseIterable {
        case chunks, lines
    }

    let kind: Kind
    /// Room for a few chunks. A connection has one at a time.
    let limits = HandoffLimits(chunkSize: 4096, bytesInFlight: 4096, budget: ByteBudget(limit: 4 * 4096))
    let queue = DispatchQueue(label: "requests", attributes: .concurrent)
    /// The most of the budget that was in use while a request was processed.
    let mostInUse = Shared(0)
    /// The most bytes of answers that one connection had waiting.
    var mostPending = 0
    var endings: [String] = []
    private var sessions: [RequestSession] = []

    init(_ kind: Kind) { self.kind = kind }

    /// Serves `count` connections on the calling thread's loop.
    func listen(for count: Int) throws -> SocketAddress {
        let listener = try Listener(.unixUnnamed) { [self] listener, connection in
            sessions.append(RequestSession(connection, of: self))
            if sessions.count == count { listener.close() }
        }
        try RunLoop.current.add(listener, forMode: .default)
        return listener.localAddress
    }
}

enum AnswerOrEnd: Sendable {
    case answer([UInt8])
    case end
}

/// Cuts requests out of chunks.
private struct RequestParser: ChunkProcessor {
    var framer = LineFramer()
    let take: @Sendable (RawSpan) -> Void

    var output: Int { framer.lineCount }

    mutating func process(_ chunk: RawSpan) throws {
        _ = try framer.push(chunk) { [take] line, _ in
            take(line)
            return .more
        }
    }
}

/// A connection's side on the loop. Its input is suspended while too much output waits.
final class RequestSession: StreamDelegate {
    private static let highMark = 8192

    private unowned let server: RequestServer
    private let output: OutputStream
    private var pending: [UInt8] = []
    private var written = 0
    /// Whether the output has delivered space, and has not been written since.
    private var hasSpace = false
    private var isInputOver = false
    private var suspend: () -> Void = {}
    private var resume: () -> Void = {}

    init(_ connection: Listener.Connection, of server: RequestServer) {
        self.server = server
        output = connection.output
        output.delegate = self
        output.schedule(in: .current, forMode: .default)
        output.open()
        start(connection.input, Mailbox { [unowned self] mailbox, message in take(message, mailbox) })
    }

    private func start(_ input: InputStream, _ answers: Mailbox<AnswerOrEnd>) {
        let (budget, most) = (server.limits.budget!, server.mostInUse)
        let look: @Sendable (RawSpan) -> Void = { line in
            most.update { $0 = max($0, budget.inUse) }
            answers.post(.answer(line.withUnsafeBytes { Array("ok ".utf8) + $0 + [10] }))
        }
        switch server.kind {
        case .chunks:
            let parser = RequestParser(take: look)
            let handoff = ChunkHandoff(input, to: parser, on: server.queue, limits: server.limits)
            (suspend, resume) = (handoff.suspend, handoff.resume)
            handoff.start { [server] in server.finish($0.ending.name, answers) }
        case .lines:
            let reader = LineReader(input, into: (), on: server.queue, options: .init(limits: server.limits))
            {
                _, line, _ in look(line)
            }
            (suspend, resume) = (reader.suspend, reader.resume)
            reader.start { [server] in server.finish($0.ending.name, answers) }
        }
    }

    private func take(_ message: AnswerOrEnd, _ mailbox: Mailbox<AnswerOrEnd>) {
        switch message {
        case .answer(let answer): pending += answer
        case .end:
            isInputOver = true
            mailbox.close()
        }
        write()
    }

    private func write() {
        if hasSpace, written < pending.count {
            hasSpace = false
            let count = pending[written...].withUnsafeBufferPointer {
                output.write($0.baseAddress!, maxLength: $0.count)
            }
            written += max(0, count)
        }
        let waiting = pending.count - written
        server.mostPending = max(server.mostPending, waiting)
        if waiting == 0 || written > Self.highMark {
            pending.removeFirst(written)
            written = 0
        }
        if waiting > Self.highMark { suspend() } else { resume() }
        if isInputOver, waiting == 0 { output.close() }
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        guard eventCode == .hasSpaceAvailable else { return }
        hasSpace = true
        write()
    }
}

extension RequestServer {
    fileprivate func finish(_ ending: String, _ answers: Mailbox<AnswerOrEnd>) {
        endings.append(ending)
        answers.post(.end)  // comes after all that the processor has posted
    }
}
