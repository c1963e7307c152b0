import Reactor
import SystemPackage

/// The lines of a descriptor, which is asked for bytes every 10 ms: what a program does that has no event loop.
struct PolledLines: AsyncSequence {
    let descriptor: FileDescriptor

    func makeAsyncIterator() -> Iterator { Iterator(descriptor: descriptor) }

    struct Iterator: AsyncIteratorProtocol {
        let descriptor: FileDescriptor
        private var framer = Framer.delimiter()
        private var lines: [[UInt8]] = []

        init(descriptor: FileDescriptor) { self.descriptor = descriptor }

        mutating func next() async throws -> [UInt8]? {
            var bytes = [UInt8](repeating: 0, count: 4096)
            while lines.isEmpty {
                do {
                    let count = try unsafe bytes.withUnsafeMutableBytes {
                        try unsafe descriptor.read(into: $0)
                    }
                    if count == 0 { return nil }
                    try framer.push(unsafe bytes.span.bytes.extracting(0..<count)) { line in
                        lines.append(unsafe line.withUnsafeBytes { unsafe Array($0) })
                        return .more
                    }
                } catch Errno.resourceTemporarilyUnavailable {
                    try await RunLoop.main.clock().sleep(for: .milliseconds(10))
                }
            }
            return lines.removeFirst()
        }
    }
}
