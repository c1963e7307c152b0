import SystemPackage

/// Sends the bytes of a write buffer when the descriptor has room. Confined to the streams thread's loop.
///
/// It has a descriptor of its own, so the stream's may be closed and its number reused meanwhile. While there
/// is none left it uses the stream's.
final class WriteBufferSender {
    private let buffer: WriteBuffer
    private let shared: SharedDescriptor
    private var own: SharedDescriptor?
    private var source: DescriptorSource?
    private var timer: Timer?
    private var hasEnded = false

    /// - Parameter shared: The stream's descriptor.
    init(_ buffer: WriteBuffer, of shared: SharedDescriptor) { (self.buffer, self.shared) = (buffer, shared) }

    func begin() {
        own = buffer.takeDescriptor(of: shared)
        guard buffer.begin(self, on: .current) else { return end() }
        // A sender before this one may have reported its last bytes since these were queued.
        buffer.client.sent(0, true)
        watch()
        expectProgress()
    }

    /// Registers the descriptor. If the kernel has no memory or descriptors for that, sends what it can and
    /// tries again.
    private func watch() {
        guard !hasEnded else { return }
        do throws(Errno) { try RunLoop.current.register(makeSource(), forMode: .default) } catch {
            send()
            if !hasEnded { Timer.scheduled(after: Self.retryInterval) { _ in self.watch() } }
        }
    }

    private func makeSource() throws(Errno) -> DescriptorSource {
        if let source { return source }
        guard let own = own ?? buffer.takeDescriptor(of: shared) else { throw .tooManyOpenFiles }
        let number = FileDescriptor(rawValue: own.number)
        let source = DescriptorSource(number, for: .writable) { _, _ in self.send() }
        (self.own, self.source) = (own, source)
        return source
    }

    /// 20 ms: rare enough to cost nothing, and short for a peer that waits.
    static let retryInterval: Duration = .milliseconds(20)

    /// Restarts the timer of a stream with limits: the peer takes a byte in time, or takes too long in all.
    func expectProgress() {
        guard !hasEnded else { return }
        timer?.invalidate()
        guard let limits = buffer.limits else { return }
        let rest = limits.end.map { Deadline.now.duration(to: $0) } ?? limits.stallTimeout
        timer = Timer.scheduled(after: min(limits.stallTimeout, rest)) { _ in self.expire() }
    }

    private func expire() {
        buffer.fail(.timedOut)
        // Closing would leave what the kernel has taken to the kernel, for as long as the peer takes it.
        if buffer.limits?.end != nil, let own = own ?? buffer.ownDescriptor {
            buffer.client.end(own, .reset, buffer)
        }
        end()
    }

    private func send() {
        switch buffer.send(to: own ?? shared) {
        case .blocked(let hasSentSome): if hasSentSome { expectProgress() }
        case .failed(let error): fail(error)
        case .done(let ending): finish(ending)
        }
    }

    private func finish(_ ending: WriteBuffer.Ending) {
        cancel()
        if let own = own ?? buffer.takeDescriptor(of: shared) {
            buffer.client.end(own, ending, buffer)
        } else if ending == .shutDown {
            try? shared.shutDown()
        }
        PendingOutput.end()
    }

    private func fail(_ error: Errno) {
        buffer.fail(error)
        end()
    }

    func end() {
        guard !hasEnded else { return }
        cancel()
        own?.close()
        PendingOutput.end()
    }

    private func cancel() {
        hasEnded = true
        source?.cancel()
        timer?.invalidate()
    }
}
