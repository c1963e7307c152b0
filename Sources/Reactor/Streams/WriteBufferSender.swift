import SystemPackage

/// Sends the bytes of a write buffer when the descriptor has room. Confined to the streams thread's loop.
///
/// It has a descriptor of its own, so the stream's may be closed and its number reused meanwhile.
final class WriteBufferSender {
    private let buffer: WriteBuffer
    private let descriptor: SharedDescriptor
    private var source: DescriptorSource?
    private var stallTimer: Timer?
    private var hasEnded = false

    /// - Parameter descriptor: A descriptor that nothing else uses, which the sender closes.
    init(_ buffer: WriteBuffer, _ descriptor: SharedDescriptor) {
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

    /// Registers the descriptor. If the kernel has no memory or descriptors for that, sends what it can and
    /// tries again.
    private func watch() {
        guard !hasEnded, let source else { return }
        do throws(Errno) { try RunLoop.current.add(source, forMode: .default) } catch {
            send()
            if !hasEnded { Timer.scheduled(after: Self.retryInterval) { _ in self.watch() } }
        }
    }

    /// 20 ms: rare enough to cost nothing, and short for a peer that waits.
    private static let retryInterval: Duration = .milliseconds(20)

    /// Restarts the stall timer, if there is a timeout.
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
