import ReactorFoundation

/// A reply of the Redis protocol.
enum RedisReply: Equatable {
    case status(String)
    case error(String)
    case number(Int)
    case bytes(Data?)
    case array([RedisReply])
}

/// A small Redis client as Cocoa code writes it: a pair of streams on the thread's run loop, with a buffer for each
/// direction.
final class RedisClient: NSObject, StreamDelegate {
    private let port: Int
    private var input: InputStream!
    private var output: OutputStream!
    private var outgoing = Data()
    /// The received bytes that have not been parsed.
    private var incoming = Data()
    private(set) var replies: [RedisReply] = []
    /// How often the connection has been opened.
    private(set) var openCount = 0
    /// Called after the connection has ended.
    var connectionDidEnd: (() -> Void)?

    init(port: UInt16) {
        self.port = Int(port)
        super.init()
    }

    deinit { close() }

    func open() {
        (incoming, outgoing) = (Data(), Data())
        Stream.getStreamsToHost(withName: "localhost", port: port, inputStream: &input, outputStream: &output)
        for stream in [input, output] as [Stream] {
            stream.delegate = self
            // Such code sets the level even where it is the default.
            stream.setProperty(
                StreamSocketSecurityLevel.none.rawValue,
                forKey: Stream.PropertyKey(rawValue: "kCFStreamPropertySocketSecurityLevel"))
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    private func close() {
        for stream in [input, output] as [Stream?] {
            stream?.delegate = nil
            stream?.close()
            stream?.remove(from: .current, forMode: .default)
        }
    }

    /// Sends a command.
    func call(_ words: String...) { call(words.map { Data($0.utf8) }) }

    func call(_ words: [Data]) {
        outgoing += Data("*\(words.count)\r\n".utf8)
        for word in words { outgoing += Data("$\(word.count)\r\n".utf8) + word + Data("\r\n".utf8) }
        if output.hasSpaceAvailable { flush() }
    }

    /// Runs the loop until `count` replies have arrived, and removes and returns them.
    func take(_ count: Int = 1) -> [RedisReply] {
        run { replies.count >= count }
        defer { replies.removeFirst(count) }
        return Array(replies.prefix(count))
    }

    /// Runs the loop until `isDone` returns true.
    func run(until isDone: () -> Bool) {
        while !isDone(), RunLoop.current.run(mode: .default, before: Deadline.distantFuture) {}
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .openCompleted: if aStream == output { openCount += 1 }
        case .hasBytesAvailable: read()
        case .hasSpaceAvailable: flush()
        case .errorOccurred, .endEncountered:
            close()
            connectionDidEnd?()
        default: break
        }
    }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = input.read(&buffer, maxLength: buffer.count)
        guard count > 0 else { return }
        incoming.append(contentsOf: buffer[..<count])
        var parser = RedisParser(rest: incoming[...])
        while let reply = parser.next() {
            replies.append(reply)
            incoming = Data(parser.rest)
        }
    }

    private func flush() {
        guard !outgoing.isEmpty else { return }
        let count = outgoing.withUnsafeBytes { bytes in
            output.write(bytes.bindMemory(to: UInt8.self).baseAddress!, maxLength: bytes.count)
        }
        if count > 0 { outgoing = Data(outgoing.dropFirst(count)) }
    }
}

/// A parser of replies. After an incomplete reply, start again with a new parser.
private struct RedisParser {
    var rest: Data

    mutating func next() -> RedisReply? {
        guard let line = line(), let kind = line.first else { return nil }
        let text = String(line.dropFirst())
        switch kind {
        case "+": return .status(text)
        case "-": return .error(text)
        case ":": return Int(text).map(RedisReply.number)
        case "$": return Int(text).flatMap { bytes($0) }
        case "*": return Int(text).flatMap { array($0) }
        default: preconditionFailure("A line violates the Redis protocol: \(line)")
        }
    }

    private mutating func line() -> String? {
        guard let end = rest.range(of: Data("\r\n".utf8)) else { return nil }
        defer { rest = rest[end.upperBound...] }
        return String(decoding: rest[..<end.lowerBound], as: UTF8.self)
    }

    private mutating func bytes(_ count: Int) -> RedisReply? {
        guard count >= 0 else { return .bytes(nil) }
        guard rest.count >= count + 2 else { return nil }
        defer { rest = rest.dropFirst(count + 2) }
        return .bytes(Data(rest.prefix(count)))
    }

    private mutating func array(_ count: Int) -> RedisReply? {
        var members: [RedisReply] = []
        for _ in 0..<max(0, count) {
            guard let member = next() else { return nil }
            members.append(member)
        }
        return .array(members)
    }
}
