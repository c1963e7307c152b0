import ReactorFoundation

/// What Redis answers.
enum RedisReply: Equatable {
    case status(String)
    case error(String)
    case number(Int)
    case bytes(Data?)
    case array([RedisReply])
}

/// A small client for Redis, of the usual kind.
final class RedisClient: Connection {
    private(set) var replies: [RedisReply] = []

    /// Sends a command.
    func call(_ words: String...) { call(words.map { Data($0.utf8) }) }

    func call(_ words: [Data]) {
        var command = Data("*\(words.count)\r\n".utf8)
        for word in words { command += Data("$\(word.count)\r\n".utf8) + word + Data("\r\n".utf8) }
        send(command)
    }

    /// Runs the loop until so many replies have come, and takes them.
    func take(_ count: Int = 1) -> [RedisReply] {
        runLoop { replies.count >= count }
        defer { replies.removeFirst(count) }
        return Array(replies.prefix(count))
    }

    override func bytesDidArrive() {
        var reader = RedisReader(rest: incoming[...])
        while let reply = reader.next() {
            replies.append(reply)
            incoming = Data(reader.rest)
        }
    }
}

/// Makes replies out of bytes. A reply that is not whole leaves the reader in no state to go on.
private struct RedisReader {
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
        default: preconditionFailure("this is not Redis's protocol: \(line)")
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
