// bulk-reactor KIND CHUNK MIB  Reads MIB mebibytes of a pipe, which a thread writes, at most CHUNK bytes at a time:
//                              cpu-ms/GB MB/s reads
//
// delegate: a stream's delegate reads into a buffer; chunks: `for await` over the stream's chunks, in an actor of the loop.

import Glibc
import Measuring
import Reactor
import SystemPackage

let (chunk, mebibytes, _) = numbers(from: 2)
let byteCount = mebibytes << 20
let descriptors = try FileDescriptor.pipe()
let writing = Task.detached { [end = descriptors.writeEnd] in
    let block = [UInt8](repeating: 120, count: 65_536)
    for _ in 0..<byteCount / block.count { try end.writeAll(block) }
}

/// Counts what has been read; the last byte ends the program.
struct Totals {
    private let begin = (wall: now(), processor: processorTime())
    private var bytes = 0
    private var reads = 0

    mutating func add(_ count: Int) {
        bytes += count
        reads += 1
        guard bytes >= byteCount else { return }
        let (wall, processor) = (now() - begin.wall, processorTime() - begin.processor)
        report([
            fixed(Double(processor) * 1000 / Double(bytes)), fixed(Double(bytes) * 1000 / Double(wall)),
            "\(reads)",
        ])
    }
}

final class Reader: StreamDelegate {
    private var totals = Totals()
    private let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: chunk)

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
        totals.add(input.read(buffer, maxLength: chunk))
    }
}

actor Consumer {
    private let executor = RunLoop.main.executor()
    private var totals = Totals()
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    func consume(_ input: sending InputStream) async throws {
        for try await bytes in input.chunks(upTo: chunk) { totals.add(bytes.count) }
    }
}

if CommandLine.arguments[1] == "delegate" {
    let (reader, input) = (Reader(), InputStream(descriptor: descriptors.readEnd))
    input.delegate = reader
    input.schedule(in: .main, forMode: .default)
    input.open()
    RunLoop.main.run(in: .default)
}
let consumer = Consumer()
Task.detached { try await consumer.consume(InputStream(descriptor: descriptors.readEnd)) }
while true { RunLoop.main.run(in: .default) }
