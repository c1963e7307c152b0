import Reactor
import SystemPackage

/// Reads a pipe as a stream.
final class Link: StreamDelegate {
    private let input: InputStream
    private let handler: (_ count: Int) -> Void
    private let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: 64)

    init(_ descriptor: FileDescriptor, handler: @escaping (_ count: Int) -> Void) {
        self.handler = handler
        input = InputStream(descriptor: descriptor)
        input.delegate = self
        input.schedule(in: .current, forMode: .default)
        input.open()
    }

    deinit { buffer.deallocate() }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard event == .hasBytesAvailable else { return }
        handler(input.read(buffer, maxLength: 64))
    }
}
