import Glibc
import SystemPackage

/// Sees off a socket whose stream has been closed with bytes that the kernel had no room for yet: they are sent
/// on the sockets' own thread, and then the socket is let go of.
final class SocketLinger {
    /// How long the peer may go without reading, if nothing else is said.
    private static let usualPatience: Duration = .seconds(30)

    private var backlog: SocketBacklog
    private let channel: SocketChannel
    private let patience: Duration
    private var source: DescriptorSource?
    private var limit: Timer?

    static func begin(_ backlog: SocketBacklog, of channel: SocketChannel) {
        guard let loop = try? ResidentThread.streams.runLoop() else { return channel.close(.output) }
        guard !channel.holder.closesWhenDone, let own = channel.duplicate() else {
            loop.perform { SocketLinger(backlog, of: channel).begin() }
            return
        }
        // A descriptor that was only lent is its owner's again, to close or to use.
        channel.close(.output)
        loop.perform { SocketLinger(backlog, of: own).begin() }
    }

    private init(_ backlog: SocketBacklog, of channel: SocketChannel) {
        self.backlog = backlog
        self.channel = channel
        patience = channel.state.withLock { $0.details.options.writeTimeout } ?? Self.usualPatience
    }

    private func begin() {
        let descriptor = FileDescriptor(rawValue: channel.holder.number)
        guard descriptor.rawValue >= 0 else { return end() }
        let source = DescriptorSource(descriptor, for: .writable) { _, _ in self.goOn() }
        self.source = source
        guard (try? RunLoop.current.add(source, forMode: .default)) != nil else { return end() }
        limit = Timer.scheduled(after: patience) { _ in self.end() }
    }

    private func goOn() {
        do throws(Errno) {
            try unsafe backlog.send { (bytes) throws(Errno) in try unsafe channel.holder.send(bytes) }
            guard backlog.count == 0 else {
                limit?.fireDate = .now.advanced(by: patience)
                return
            }
            if backlog.isShutDown { try channel.holder.shutDown() }
        } catch {
            // The peer has gone; nobody is left to tell.
        }
        end()
    }

    private func end() {
        source?.cancel()
        limit?.invalidate()
        channel.close(.output)
    }
}

extension SocketChannel {
    /// The same connection by a descriptor of its own; nil if there is none to be had.
    fileprivate func duplicate() -> SocketChannel? {
        let number = try? holder.use { (number) throws(Errno) in
            try SystemCall.make { fcntl(number, F_DUPFD_CLOEXEC, 0) }
        }
        guard let number else { return nil }
        let copy = SocketChannel(DescriptorHolder(number, closesWhenDone: true), only: .output)
        let options = state.withLock { $0.details.options }
        copy.state.withLock { $0.details.options = options }
        return copy
    }
}
