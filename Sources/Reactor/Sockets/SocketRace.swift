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
    private var attempts: [DescriptorSource] = []
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
        for attempt in attempts { abandon(attempt) }
        attempts = []
    }

    private func attemptNext() {
        nextAttempt?.invalidate()
        while !isOver, let address = addresses.popFirst() {
            do throws(Errno) {
                if try !begin(address) { continue }
            } catch {
                lastError = error
                continue
            }
            if !addresses.isEmpty { attemptNext(after: Self.attemptDelay) }
            return
        }
        if !isOver, attempts.isEmpty { lose(with: lastError) }
    }

    private func attemptNext(after delay: Duration) {
        nextAttempt = Timer.scheduled(after: delay, forMode: .common) { [weak self] _ in self?.attemptNext() }
    }

    /// Begins to connect to `address`; false if that has come to its end already.
    private func begin(_ address: SocketAddress) throws(Errno) -> Bool {
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let number = try SystemCall.make { socket(CInt(address.family.rawValue), type, 0) }
        do throws(Errno) {
            // Interrupted, it goes on by itself: it is not to be asked again.
            let code = unsafe address.withSockAddr { unsafe connect(number, $0, $1) == 0 ? 0 : errno }
            switch code {
            case 0:
                win(number)
                return false
            case EINPROGRESS, EINTR: try watch(number)
            case EAGAIN where address.family == .unix:
                close(number)
                addresses = [address] + addresses
                attemptNext(after: Self.retryDelay)
                return true
            default: throw Errno(rawValue: code)
            }
        } catch {
            close(number)
            throw error
        }
        return true
    }

    private func watch(_ number: CInt) throws(Errno) {
        let source = DescriptorSource(FileDescriptor(rawValue: number), for: .writable) {
            [weak self] source, _ in
            self?.attemptEnded(source)
        }
        try RunLoop.current.add(source, forMode: .default)
        attempts.append(source)
    }

    private func attemptEnded(_ source: DescriptorSource) {
        let number = source.descriptor.rawValue
        var (code, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
        if unsafe getsockopt(number, SOL_SOCKET, SO_ERROR, &code, &size) != 0 { code = errno }
        attempts.removeAll { $0 === source }
        source.cancel()
        if code == 0 { return win(number) }
        close(number)
        lastError = Errno(rawValue: code)
        attemptNext()
    }

    private func abandon(_ attempt: DescriptorSource) {
        let descriptor = attempt.descriptor
        attempt.cancel()
        try? descriptor.close()
    }

    private func win(_ number: CInt) {
        let descriptor = FileDescriptor(rawValue: number)
        guard let peer = try? SocketAddress.peer(of: descriptor) else {
            return fail(number, .socketNotConnected)
        }
        // A port of this machine that nobody listens at may be given to the connecting socket itself, which then
        // meets itself.
        if peer.port != nil, peer == (try? SocketAddress.local(of: descriptor)) {
            return fail(number, .connectionRefused)
        }
        end()
        completion(.success(ConnectedSocket(number: number, peer: peer)))
    }

    private func fail(_ number: CInt, _ error: Errno) {
        close(number)
        lastError = error
        attemptNext()
    }

    private func lose(with error: Errno) {
        end()
        completion(.failure(error))
    }
}
