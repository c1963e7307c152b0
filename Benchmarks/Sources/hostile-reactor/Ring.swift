import Glibc
import Measuring
import Outcome
import Reactor
import SystemPackage

/// Five pipes. A byte goes round, and counts up.
final class Ring {
    static let hops = 100
    private var links: [Link] = []
    private var count = 0

    func start() {
        let pipes = (0..<5).map { _ in
            do { return try FileDescriptor.pipe() } catch { reported(error) }
        }
        for index in pipes.indices {
            links.append(
                Link(from: pipes[index].readEnd, to: pipes[(index + 1) % pipes.count].writeEnd) {
                    [self] byte in
                    pass(byte, on: index)
                })
        }
        links[4].send(0)
    }

    private func pass(_ byte: UInt8, on index: Int) {
        if Int(byte) != count || index != count % links.count {
            fail("byte \(byte) at \(index), not \(count)")
        }
        count += 1
        if count < Self.hops { return links[index].send(UInt8(count)) }
        for link in links { link.close() }
        links = []
        finish("\(count)")
    }
}

/// An input and an output stream.
final class Link: StreamDelegate {
    private let input: InputStream
    private let output: OutputStream
    private let handler: (UInt8) -> Void
    private var pending: UInt8?

    init(from source: FileDescriptor, to destination: FileDescriptor, handler: @escaping (UInt8) -> Void) {
        self.handler = handler
        input = InputStream(descriptor: source, closeWhenDone: true)
        output = OutputStream(descriptor: destination, closeWhenDone: true)
        for stream in [input, output] as [Reactor.Stream] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    func close() { for stream in [input, output] as [Reactor.Stream] { stream.close() } }

    func send(_ byte: UInt8) {
        pending = byte
        if output.hasSpaceAvailable { write() }
    }

    private func write() {
        guard let byte = pending else { return }
        let count = output.write([byte])
        if count > 0 { pending = nil }
        if let error = output.streamError { reported(error) }
    }

    func stream(_ stream: Reactor.Stream, handle event: Reactor.Stream.Event) {
        switch event {
        case .hasBytesAvailable: for byte in input.read(upTo: 64) { handler(byte) }
        case .hasSpaceAvailable: write()
        case .errorOccurred: reported(stream.streamError!)
        case .endEncountered: fail("an end of a pipe that is open")
        default: break
        }
    }
}
