// echo-dispatch [PORT]  Read and write sources on one serial queue. Prints the port that it listens on.

import Dispatch
import Glibc
import Workloads

/// Used only on the queue.
final class Connection: @unchecked Sendable {
    static let queue = DispatchQueue(label: "echo")

    private let descriptor: CInt
    private let buffer = UnsafeMutableRawPointer.allocate(byteCount: Int(echo_buffer_size), alignment: 16)
    private var rest = 0..<0
    private let reading: any DispatchSourceRead
    private var writing: (any DispatchSourceWrite)?

    init(_ descriptor: CInt) {
        self.descriptor = descriptor
        reading = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: Self.queue)
        reading.setEventHandler { self.echo() }
        reading.setCancelHandler { close(descriptor) }
        reading.activate()
    }

    deinit { buffer.deallocate() }

    private func echo() {
        let count = read(descriptor, buffer, Int(echo_buffer_size))
        if count < 0, errno == EAGAIN { return }
        guard count > 0 else { return reading.cancel() }
        let written = write(descriptor, buffer, count)
        guard written >= 0 || errno == EAGAIN else { return reading.cancel() }
        if written < count { writeLater(max(written, 0)..<count) }
    }

    private func writeLater(_ bytes: Range<Int>) {
        rest = bytes
        reading.suspend()
        let writing = DispatchSource.makeWriteSource(fileDescriptor: descriptor, queue: Self.queue)
        writing.setEventHandler { self.writeRest() }
        writing.activate()
        self.writing = writing
    }

    private func writeRest() {
        let written = write(descriptor, buffer + rest.lowerBound, rest.count)
        guard written >= 0 || errno == EAGAIN else { return end() }
        rest = rest.dropFirst(max(written, 0))
        guard rest.isEmpty else { return }
        writing?.cancel()
        writing = nil
        reading.resume()
    }

    private func end() {
        writing?.cancel()
        writing = nil
        reading.resume()
        reading.cancel()
    }
}

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let listener = echo_listen(CommandLine.argc, CommandLine.unsafeArgv)
        let accepting = DispatchSource.makeReadSource(fileDescriptor: listener, queue: Connection.queue)
        accepting.setEventHandler {
            let descriptor = echo_next(listener)
            if descriptor >= 0 { _ = Connection(descriptor) }
        }
        accepting.activate()
        while true { sleep(1000) }  // valgrind fails in dispatchMain()
    }
}
