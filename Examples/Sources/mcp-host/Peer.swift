import FoundationEssentials
import Reactor

/// The other side of a conversation in JSON-RPC 2.0 (https://www.jsonrpc.org/specification), with one message in each line, as
/// the Model Context Protocol has it over standard input and output.
///
/// Requests of any number of tasks are answered in any order. With `Framer.contentLength()` in the place of lines this is a
/// language server's protocol.
@MainActor final class Peer {
    /// Answers the peer's requests, one after the other: it must not await a request of its own to the same peer.
    typealias Handler = @MainActor (_ method: String) async throws -> any Encodable

    private let sends: SendQueue
    private let handler: Handler?
    private var replies: [Int: AsyncThrowingStream<[UInt8], any Error>.Continuation] = [:]
    private var lastID = 0
    private var hasEnded = false
    private let (encoder, decoder) = (JSONEncoder(), JSONDecoder())

    init(writing output: sending OutputStream, handler: Handler? = nil) {
        (sends, self.handler) = (SendQueue(to: output), handler)
    }

    // MARK: Requests

    /// Sends a request, and awaits its reply.
    ///
    /// - Throws: ``RemoteError`` if the peer says so, ``PeerHasEnded``, the error of the stream, or `CancellationError`.
    func request<Result: Decodable>(_ method: String, returning type: Result.Type = Result.self) async throws
        -> Result
    {
        guard !hasEnded else { throw PeerHasEnded() }
        lastID += 1
        let id = lastID
        let (messages, reply) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
        replies[id] = reply
        defer { replies[id] = nil }
        try send(Request(id: id, method: method))
        for try await message in messages {
            let reply = try decoder.decode(Reply<Result>.self, from: Data(message))
            if let result = reply.result { return result }
            throw reply.error
                ?? RemoteError(code: -32603, message: "The reply has neither a result nor an error.")
        }
        throw CancellationError()  // which ends the iteration
    }

    /// Sends a notification, which has no reply.
    func notify(_ method: String) throws { try send(Request(id: nil, method: method)) }

    /// Sends what was requested before, and ends the output.
    func finish() async throws { try await sends.finish(timeout: .seconds(5)) }

    private func send(_ message: some Encodable) throws {
        try sends.send(Array(encoder.encode(message)) + [10])
    }

    // MARK: Receiving

    /// Receives until the peer ends or fails, and then fails what waits for a reply.
    func run(reading messages: some AsyncSequence<[UInt8], any Error>) async throws {
        defer { end() }
        for try await message in messages { try await receive(message) }
    }

    private func receive(_ message: [UInt8]) async throws {
        guard let head = try? decoder.decode(Head.self, from: Data(message)) else {
            return try send(Failure(id: nil, error: RemoteError(code: -32700, message: "Parse error")))
        }
        guard let method = head.method else {
            if let id = head.id { replies[id]?.yield(message) }
            return
        }
        guard let id = head.id else { return }  // a notification
        do {
            guard let handler else { throw RemoteError(code: -32601, message: "Method not found") }
            try await send(Success(id: id, result: handler(method)))
        } catch let error as RemoteError {
            try send(Failure(id: id, error: error))
        }
    }

    private func end() {
        hasEnded = true
        for reply in replies.values { reply.finish(throwing: PeerHasEnded()) }
    }
}

/// The peer has ended, or its stream has failed.
struct PeerHasEnded: Error {}

/// An error that the peer reports.
struct RemoteError: Error, Codable {
    var code: Int
    var message: String
}

// MARK: - Messages

private struct Head: Decodable {
    var id: Int?
    var method: String?
}

private struct Request: Encodable {
    var jsonrpc = "2.0"
    var id: Int?
    var method: String
}

private struct Reply<Result: Decodable>: Decodable {
    var result: Result?
    var error: RemoteError?
}

private struct Success: Encodable {
    var jsonrpc = "2.0"
    var id: Int
    var result: any Encodable

    private enum CodingKeys: CodingKey { case jsonrpc, id, result }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(jsonrpc, forKey: .jsonrpc)
        try container.encode(id, forKey: .id)
        try container.encode(result, forKey: .result)
    }
}

private struct Failure: Encodable {
    var jsonrpc = "2.0"
    var id: Int?
    var error: RemoteError
}
