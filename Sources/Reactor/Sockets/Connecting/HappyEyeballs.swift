import CReactorLinux
import Glibc
import SystemPackage

/// A connected socket, closed when it is released.
struct ConnectedSocket: Sendable {
    let socket: SharedDescriptor
    let peer: SocketAddress
}

/// Connects to the first of several addresses that answers (RFC 8305, "Happy Eyeballs").
///
/// Attempts start one after another: each a moment after the one before, or as soon as that one has failed.
/// The first that succeeds ends the others. Confined to the loop that it is created on.
final class HappyEyeballs {
    /// RFC 8305's Connection Attempt Delay.
    private static let attemptDelay: Duration = .milliseconds(250)
    /// The kernel reports no room in a Unix-domain listener's queue, so it is polled: rarely enough to cost
    /// nothing.
    private static let retryDelay: Duration = .milliseconds(10)

    typealias Outcome = Result<ConnectedSocket, Errno>

    private let options: ConnectionOptions
    /// Where the connection begins, in a test's network.
    private let host: NetworkHost?
    private let completion: (Outcome) -> Void
    private var addresses: ArraySlice<SocketAddress> = []
    private var attempts: [Attempt] = []
    /// The attempts over a test's network, which end when they are released.
    private var simulatedAttempts: [SocketAddress: AnyObject] = [:]
    private var nextAttempt: Timer?
    private var lastError = Errno.noRouteToHost
    private var hasEnded = false

    /// - Parameter completion: Called once, unless ``cancel()`` is called before.
    init(
        _ options: ConnectionOptions = .pair, from host: NetworkHost? = nil,
        completion: @escaping (Outcome) -> Void
    ) {
        (self.options, self.host, self.completion) = (options, host, completion)
    }

    func connect(to addresses: [SocketAddress]) {
        self.addresses = addresses[...]
        attemptNext()
    }

    /// Ends all attempts. The completion is not called.
    func cancel() {
        hasEnded = true
        nextAttempt?.invalidate()
        for attempt in attempts { attempt.cancel() }
        (attempts, simulatedAttempts) = ([], [:])
    }

    private func finish(_ outcome: Outcome) {
        cancel()
        completion(outcome)
    }

    private func attemptNext() {
        nextAttempt?.invalidate()
        while !hasEnded, let address = addresses.popFirst() {
            do throws(Errno) {
                guard let delay = try begin(address) else { continue }
                if !addresses.isEmpty { attemptNext(after: delay) }
                return
            } catch {
                lastError = error
            }
        }
        if !hasEnded, attempts.isEmpty, simulatedAttempts.isEmpty { finish(.failure(lastError)) }
    }

    private func attemptNext(after delay: Duration) {
        nextAttempt = Timer.scheduled(after: delay, forMode: .common) { [weak self] _ in self?.attemptNext() }
    }

    /// Starts to connect to `address`.
    ///
    /// - Returns: How long to wait before the next attempt; nil if this one has ended already.
    private func begin(_ address: SocketAddress) throws(Errno) -> Duration? {
        if address.port != nil, let network = currentTimeSource?.network {
            simulatedAttempts[address] = try network.connect(to: address, from: host) { [weak self] in
                self?.settle(address, $0)
            }
            return Self.attemptDelay
        }
        let descriptor = try FileDescriptor.socket(address.family, SOCK_STREAM)
        let socket = SharedDescriptor(descriptor.rawValue, closesWhenDone: true)
        options.apply(to: descriptor)
        // Not repeated after EINTR: an interrupted connect(2) continues in the background.
        let code = reactor_connect(descriptor.rawValue, address.raw) == 0 ? 0 : errno
        switch code {
        case 0:
            try finish(with: socket)
            return nil
        case EINPROGRESS, EINTR:
            let attempt = Attempt(socket) { [weak self] in self?.settle($0) }
            // First: the loop may have to cancel the race before it registers anything.
            attempts.append(attempt)
            do throws(Errno) { try RunLoop.current.register(attempt, forMode: .default) } catch {
                attempts.removeAll { $0 === attempt }
                throw error
            }
            return hasEnded ? nil : Self.attemptDelay
        case EAGAIN where address.family == .unix:
            addresses = [address] + addresses
            return Self.retryDelay
        default: throw Errno(rawValue: code)
        }
    }

    private func settle(_ attempt: Attempt) {
        attempts.removeAll { $0 === attempt }
        attempt.cancel()
        do throws(Errno) {
            if let error = attempt.socket.socketError { throw error }
            try finish(with: attempt.socket)
        } catch {
            attempt.socket.close()
            lastError = error
            attemptNext()
        }
    }

    private func settle(_ address: SocketAddress, _ outcome: Result<FileDescriptor, Errno>) {
        simulatedAttempts[address] = nil
        do throws(Errno) {
            let descriptor = try outcome.get()
            options.apply(to: descriptor)
            try finish(with: SharedDescriptor(descriptor.rawValue, closesWhenDone: true))
        } catch {
            lastError = error
            attemptNext()
        }
    }

    /// Ends the race with a socket that the kernel reports as connected.
    private func finish(with socket: SharedDescriptor) throws(Errno) {
        let descriptor = FileDescriptor(rawValue: socket.number)
        let peer = try socket.peer
        // The kernel may choose the unused local port that is being connected to: then the socket is its own
        // peer.
        let isItsOwnPeer = peer.port != nil && peer == (try? SocketAddress.local(of: descriptor))
        if isItsOwnPeer { throw .connectionRefused }
        finish(.success(ConnectedSocket(socket: socket, peer: peer)))
    }
}

/// A socket that is being connected.
private final class Attempt: EventSource {
    let socket: SharedDescriptor
    private var settle: ((Attempt) -> Void)?

    init(_ socket: SharedDescriptor, settle: @escaping (Attempt) -> Void) {
        (self.socket, self.settle) = (socket, settle)
        super.init(socket.number, for: .writable)
    }

    override func serve(_ readiness: Readiness) -> Bool {
        settle?(self)
        return true
    }

    override func ended() { settle = nil }
}

extension [SocketAddress] {
    /// The addresses in the order in which to try them: families alternate, so that a family without a route
    /// delays only every other attempt (RFC 8305, section 4).
    ///
    /// The family of the first address comes first. Addresses of one family keep their order, which the
    /// resolver provides according to RFC 6724.
    package func interleavingFamilies() -> [SocketAddress] {
        guard let family = first?.family else { return [] }
        var preferred = filter { $0.family == family }[...]
        var others = filter { $0.family != family }[...]
        var result: [SocketAddress] = []
        while let next = preferred.popFirst() {
            result.append(next)
            if let other = others.popFirst() { result.append(other) }
        }
        return result + others
    }
}
