import Reactor

// Sends a request, and reads the reply: four bytes say how many follow. The number is the peer's, so the framer has a limit.
let framer = Framer.lengthPrefix(UInt32.self, limit: 1_000_000)
let connection = try await Connection.connect(
    toHost: "localhost", port: 7010, options: .init(connectTimeout: .seconds(5)))
try await connection.write(framer.frame(for: Array("GET counters".utf8)), timeout: .seconds(5))
try await connection.finish(timeout: .seconds(5))

// A reply that is cut short, or above the limit, throws.
for try await reply in connection.messages(framer, timeout: .seconds(5)) {
    print(String(decoding: reply, as: UTF8.self))
}
