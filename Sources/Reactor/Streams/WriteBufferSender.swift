import SystemPackage

/// Sends the bytes of a write buffer, as the descriptor has room. Confined to the streams thread's loop.
///
/// It has a descriptor of its own, so it does not matter when the stream's is closed or its number used again.
final class WriteBufferSender {
    private let buffer: WriteBuffer
    private let descriptor: DescriptorHolder
    private var source: DescriptorSource?
    private var stallTimer: Timer?
    private var hasEnded = false

    /// - Parameter descriptor: The sender's own, which it closes.
    init(_ buffer: WriteBuffer, _ descriptor: DescriptorHolder) {
        self.buffer = buffer
        self.descriptor = descriptor
    }

    func begin() {
        guard buffer.begin(self, on: .current) else { return end() }
        let number = FileDescriptor(rawValue: descriptor.number)
        source = DescriptorSource(number, for: .writable) { _, _ in self.send() }
        watch()
        expectProgress()
    }

    /// Registers the descriptor; where the kernel refuses, for want of descriptors or memory, tries it without, and again.
    private func watch() {
        guard !hasEnded, let source else { return }
        do throws(Errno) { try RunLoop.current.add(source, forMode: .default) } catch {
            send()
            if !hasEnded { Timer.scheduled(after: Self.retryInterval) { _ in self.watch() } }
        }
    }

    /// As rare as costs nothing, and soon enough for a peer that waits.
    private static let retryInterval: Duration = .milliseconds(20)

    /// Begins to measure how long the peer takes no byte, if that is limited.
    func expectProgress() {
        guard !hasEnded, let timeout = buffer.stallTimeout else { return }
        stallTimer?.invalidate()
        stallTimer = Timer.scheduled(after: timeout) { _ in self.fail(.timedOut) }
    }

    private func send() {
        switch buffer.send(to: descriptor) {
        case .blocked(let hasSentSome): if hasSentSome { expectProgress() }
        case .failed(let error): fail(error)
        case .done(let ending): finish(ending)
        }
    }

    private func finish(_ ending: WriteBuffer.Ending) {
        cancel()
        buffer.transport.end(descriptor, ending, buffer)
        PendingOutput.end()
    }

    private func fail(_ error: Errno) {
        buffer.fail(error)
        end()
    }

    func end() {
        guard !hasEnded else { return }
        cancel()
        descriptor.close()
        PendingOutput.end()
    }

    private func cancel() {
        hasEnded = true
        source?.cancel()
        stallTimer?.invalidate()
    }
}
