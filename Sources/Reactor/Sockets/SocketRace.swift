import Glibc
import SystemPackage

/// Connects to the first of several addresses that answers (RFC 8305): one attempt after another is begun, each
/// a moment after the one before, or as soon as that has failed; the first that succeeds ends the others.
///
/// Confined to the loop that it is made on.
final class SocketRace {
    /// RFC 8305's Connection Attempt Delay.
    private static let attemptDelay: Duration = .milliseconds(250)
    /// How long to wait before trying again what a full Unix-domain listener has turned away.
    private static let retryDelay: Duration = .milliseconds(10)

    private let completion: (SocketConnector.Outcome) -> Void
    private var addresses: ArraySlice<SocketAddress> = []
    private var attempts: [Attempt] = []
    private var nextAttempt: Timer?
    private var limit: Timer?
    private var lastError = Errno.noRouteToHost
    private var isOver = false

    init(until deadline: Deadline, completion: @escaping (SocketConnector.Outcome) -> Void) {
        self.completion = completion
        let delay = Deadline.now.duration(to: deadline)
        limit = Timer.scheduled(after: delay, forMode: .common) { [weak self] _ in self?.lose(with: .timedOut)
        }
    }

    func run(to addresses: [SocketAddress]) {
        self.addresses = addresses[...]
        attemptNext()
    }

    /// Ends what is under way, and tells nobody.
    func end() {
        isOver = true
        limit?.invalidate()
        nextAttempt?.invalidate()
        attempts = []
    }

    private func attemptNext() {
        nextAttempt?.invalidate()
        while !isOver, let address = addresses.popFirst() {
            do throws(Errno) {
                guard let delay = try begin(address) else { continue }
                if !addresses.isEmpty { attemptNext(after: delay) }
                return
            } catch {
                lastError = error
            }
        }
        if !isOver, attempts.isEmpty { lose(with: lastError) }
    }

    private func attemptNext(after delay: Duration) {
        nextAttempt = Timer.scheduled(after: delay, forMode: .common) { [weak self] _ in self?.attemptNext() }
    }

    /// Begins to connect to `address`.
    ///
    /// - Returns: How long to wait before the next attempt; nil if this one has ended already.
    private func begin(_ address: SocketAddress) throws(Errno) -> Duration? {
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let number = try SystemCall.make { Glibc.socket(CInt(address.family.rawValue), type, 0) }
        let socket = DescriptorHolder(number, closesWhenDone: true)
        // Interrupted, it goes on by itself: it is not to be asked again.
        let code = unsafe address.withSockAddr { unsafe connect(number, $0, $1) == 0 ? 0 : errno }
        switch code {
        case 0:
            win(socket)
            return nil
        case EINPROGRESS, EINTR:
            attempts.append(try Attempt(socket) { [weak self] in self?.end($0) })
            return Self.attemptDelay
        case EAGAIN where address.family == .unix:
            addresses = [address] + addresses
            return Self.retryDelay
        default: throw Errno(rawValue: code)
        }
    }

    private func end(_ attempt: Attempt) {
        attempts.removeAll { $0 === attempt }
        attempt.source.cancel()
        if let error = attempt.socket.socketError { fail(attempt.socket, error) } else { win(attempt.socket) }
    }

    private func win(_ socket: DescriptorHolder) {
        let descriptor = FileDescriptor(rawValue: socket.number)
        guard let peer = try? SocketAddress.peer(of: descriptor) else {
            return fail(socket, .socketNotConnected)
        }
        // A port of this machine that nobody listens at may be given to the connecting socket itself, which then
        // meets itself.
        if peer.port != nil, peer == (try? SocketAddress.local(of: descriptor)) {
            return fail(socket, .connectionRefused)
        }
        end()
        completion(.success(ConnectedSocket(socket: socket, peer: peer)))
    }

    private func fail(_ socket: DescriptorHolder, _ error: Errno) {
        socket.close()
        lastError = error
        attemptNext()
    }

    private func lose(with error: Errno) {
        end()
        completion(.failure(error))
    }
}

/// A socket that is being connected. Its end ends the watching, and closes the socket unless that has become another's.
private final class Attempt {
    let socket: DescriptorHolder
    private(set) var source: DescriptorSource!

    init(_ socket: DescriptorHolder, ended: @escaping (Attempt) -> Void) throws(Errno) {
        self.socket = socket
        source = DescriptorSource(FileDescriptor(rawValue: socket.number), for: .writable) {
            [weak self] _, _ in
            if let self { ended(self) }
        }
        try RunLoop.current.add(source, forMode: .default)
    }

    deinit { source.cancel() }
}
