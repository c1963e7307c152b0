import Reactor

struct ReplyTooLong: Error { let byteCount: Int }

// Sends a request, and reads the reply: a header of four bytes, which says how many follow.
let (input, output) = try await Stream.connect(toHost: "localhost", port: 7010, timeout: .seconds(5))
try await output.writeAll("GET counters\n", timeout: .seconds(5))
try await output.shutDown(timeout: .seconds(5))

let header = try await input.read(exactly: 4, timeout: .seconds(5))
let count = header.reduce(0) { $0 << 8 | Int($1) }
// The number is the peer's: limit how much memory it takes.
guard count <= 1_000_000 else { throw ReplyTooLong(byteCount: count) }
let body = try await input.read(exactly: count, timeout: .seconds(5))
print(String(decoding: body, as: UTF8.self))

// What else comes, chunk by chunk, borrowed.
while let count = try await input.readChunk({ $0.byteCount }) { print("\(count) bytes more") }
