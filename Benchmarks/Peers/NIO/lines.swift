// lines-nio FILE  Chunks of 64 KiB, and memchr for each line: cpu-s/GB GB/s

import Glibc
import NIOCore
import Workloads
import _NIOFileSystem

@main
enum Peer {
    static func main() async throws { try await run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    nonisolated static func run() async throws {
        lines_begin()
        try await FileSystem.shared.withFileHandle(forReadingAt: FilePath(CommandLine.arguments[1])) { file in
            for try await chunk in file.readChunks(chunkLength: .kibibytes(64)) {
                chunk.withUnsafeReadableBytes { lines_take($0.baseAddress, $0.count) }
            }
        }
        exit(lines_end())
    }
}
