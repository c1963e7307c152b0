import Dispatch
import Reactor

// Adds up the bytes of a file on a worker queue, without blocking the loop.
struct Checksum: ChunkProcessor {
    var output: UInt64 = 0

    mutating func process(_ chunk: RawSpan) {
        chunk.withUnsafeBytes { bytes in
            for byte in bytes { output &+= UInt64(byte) }
        }
    }
}

let path = CommandLine.arguments.dropFirst().first ?? "/etc/services"
let handoff = ChunkHandoff(
    InputStream(path: .init(path)), to: Checksum(), on: DispatchQueue(label: "checksum"))
handoff.start { report in
    if case .failed(let error) = report.ending { print("\(path): \(error)") }
    print("sum \(report.output) of \(report.byteCount) bytes")
    RunLoop.current.stop()
}
RunLoop.current.run(in: .default)
