import Reactor

struct ReplyTooLong: Error { let byteCount: Int }

// Sends a request, and reads the reply: a header of four bytes, which says how many follow.
let connection = try await Connection.connect(
    toHost: "localhost", port: 7010, options: .init(connectTimeout: .seconds(5)))
try await connection.write("GET counters\n", timeout: .seconds(5))
try await connection.finish(timeout: .seconds(5))

let header = try await connection.read(exactly: 4, timeout: .seconds(5))
let count = header.reduce(0) { $0 << 8 | Int($1) }
// The number is the peer's: limit how much memory it takes.
guard count <= 1_000_000 else { throw ReplyTooLong(byteCount: count) }
let body = try await connection.read(exactly: count, timeout: .seconds(5))
print(String(decoding: body, as: UTF8.self))

// What else comes, chunk by chunk.
while let chunk = try await connection.read() { print("\(chunk.count) bytes more") }
