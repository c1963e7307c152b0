import ReactorFoundation

/// A reply of the Redis protocol.
enum RedisReply: Equatable {
    case status(String)
    case error(String)
    case number(Int)
    case bytes(Data?)
    case array([RedisReply])
}

/// A small Redis client.
final class RedisClient: Connection {
    private(set) var replies: [RedisReply] = []

    /// Sends a command.
    func call(_ words: String...) { call(words.map { Data($0.utf8) }) }

    func call(_ words: [Data]) {
        var command = Data("*\(words.count)\r\n".utf8)
        for word in words { command += Data("$\(word.count)\r\n".utf8) + word + Data("\r\n".utf8) }
        send(command)
    }

    /// Runs the loop until `count` replies have arrived, and removes and returns them.
    func take(_ count: Int = 1) -> [RedisReply] {
        runLoop { replies.count >= count }
        defer { replies.removeFirst(count) }
        return Array(replies.prefix(count))
    }

    override func bytesDidArrive() {
        var parser = RedisParser(rest: incoming[...])
        while let reply = parser.next() {
            replies.append(reply)
            incoming = Data(parser.rest)
        }
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
