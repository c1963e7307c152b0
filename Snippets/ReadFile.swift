import Reactor

// Reads a small file whole. A larger one than the limit is an error, and not cut.
let bytes = try await InputStream(path: "/etc/hosts").readToEnd(limit: 1 << 20)
print(String(decoding: bytes, as: UTF8.self))
