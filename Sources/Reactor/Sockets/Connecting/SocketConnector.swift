import CReactorLinux
import Glibc
import Synchronization
import SystemPackage

/// A connected socket, closed when it is released.
struct ConnectedSocket: Sendable {
    let socket: SharedDescriptor
    let peer: SocketAddress
}

/// An attempt to connect to a host or an address: resolves the name, then tries the addresses on the streams
/// thread.
final class SocketConnector: SocketOpening {
    typealias Outcome = Result<ConnectedSocket, any Error>

    private struct State {
        /// Nil once it was called, or the attempt was cancelled. Boxed for the same reason as a ``Callback``.
        var completion: Completion?
        var request: ResolverRequest?
        var race: LoopOwned<HappyEyeballs>?
    }

    private struct Completion: Sendable {
        let closure: @Sendable (Outcome) -> Void
    }

    private let origin: SocketConnection.Origin
    private let deadline: Deadline
    private let state: Mutex<State>

    /// - Parameters:
    ///   - deadline: The limit for resolving and connecting together.
    ///   - completion: Called once, on any thread, unless ``cancel()`` is called before.
    init(
        to origin: SocketConnection.Origin, until deadline: Deadline,
        completion: @escaping @Sendable (Outcome) -> Void
    ) {
        self.origin = origin
        self.deadline = deadline
        state = Mutex(State(completion: Completion(closure: completion)))
    }

    /// Ends the attempt. A completion that another thread has begun to call may still be running.
    func cancel() { _ = end() }

    func begin(on loop: RunLoop) {
        guard state.withLock({ $0.completion != nil }) else { return }
        let race = HappyEyeballs(until: deadline) { [weak self] outcome in self?.finish(outcome) }
        let owned = LoopOwned(race, on: loop)
        guard setUnlessEnded({ $0.race = owned }) else { return race.cancel() }
        switch origin {
        case .descriptor: break
        case .address(let address): race.connect(to: [address])
        case .host(let host, let port): resolve(host, port, for: owned)
        }
    }

    private func resolve(_ host: String, _ port: UInt16, for race: LoopOwned<HappyEyeballs>) {
        let request = Resolver.resolveOnAnyThread(host: host, port: port) { [weak self] answer in
            switch answer {
            case .failure(let error): self?.fail(error)
            case .success(let addresses):
                race.perform { $0.connect(to: addresses.interleavingFamilies()) }
            }
        }
        // Cancelled meanwhile, when there was no request to cancel yet.
        if !setUnlessEnded({ $0.request = request }) { request.cancel() }
    }

    /// Changes the state; false if the attempt has ended.
    private func setUnlessEnded(_ change: (inout State) -> Void) -> Bool {
        state.withLock { state in
            guard state.completion != nil else { return false }
            change(&state)
            return true
        }
    }

    func fail(_ error: any Error) { finish(.failure(error)) }

    private func finish(_ outcome: Outcome) { end()?.closure(outcome) }

    /// Cancels everything in progress, and returns the completion if it was not called yet.
    private func end() -> Completion? {
        let ended = state.withLock { state in
            defer { state = State() }
            return state
        }
        ended.race?.perform { $0.cancel() }
        ended.request?.cancel()
        return ended.completion
    }
}

// MARK: - Several addresses

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

    private let completion: (SocketConnector.Outcome) -> Void
    private var addresses: ArraySlice<SocketAddress> = []
    private var attempts: [Attempt] = []
    private var nextAttempt: Timer?
    private var timeout: Timer?
    private var lastError = Errno.noRouteToHost
    private var hasEnded = false

    init(until deadline: Deadline, completion: @escaping (SocketConnector.Outcome) -> Void) {
        self.completion = completion
        let delay = Deadline.now.duration(to: deadline)
        timeout = Timer.scheduled(after: delay, forMode: .common) { [weak self] _ in
            self?.finish(.failure(Errno.timedOut))
        }
    }

    func connect(to addresses: [SocketAddress]) {
        self.addresses = addresses[...]
        attemptNext()
    }

    /// Ends all attempts. The completion is not called.
    func cancel() {
        hasEnded = true
        timeout?.invalidate()
        nextAttempt?.invalidate()
        attempts = []
    }

    private func finish(_ outcome: SocketConnector.Outcome) {
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
        if !hasEnded, attempts.isEmpty { finish(.failure(lastError)) }
    }

    private func attemptNext(after delay: Duration) {
        nextAttempt = Timer.scheduled(after: delay, forMode: .common) { [weak self] _ in self?.attemptNext() }
    }

    /// Starts to connect to `address`.
    ///
    /// - Returns: How long to wait before the next attempt; nil if this one has ended already.
    private func begin(_ address: SocketAddress) throws(Errno) -> Duration? {
        let descriptor = try FileDescriptor.socket(address.family, SOCK_STREAM)
        let socket = SharedDescriptor(descriptor.rawValue, closesWhenDone: true)
        // Not repeated after EINTR: an interrupted connect(2) continues in the background.
        let code = reactor_connect(descriptor.rawValue, address.raw) == 0 ? 0 : errno
        switch code {
        case 0:
            try finish(with: socket)
            return nil
        case EINPROGRESS, EINTR:
            attempts.append(try Attempt(socket) { [weak self] in self?.settle($0) })
            return Self.attemptDelay
        case EAGAIN where address.family == .unix:
            addresses = [address] + addresses
            return Self.retryDelay
        default: throw Errno(rawValue: code)
        }
    }

    private func settle(_ attempt: Attempt) {
        attempts.removeAll { $0 === attempt }
        attempt.source.cancel()
        do throws(Errno) {
            if let error = attempt.socket.socketError { throw error }
            try finish(with: attempt.socket)
        } catch {
            attempt.socket.close()
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

/// A socket that is being connected. Releasing the attempt closes the socket, unless the connection owns it
/// by then.
private final class Attempt {
    let socket: SharedDescriptor
    private(set) var source: DescriptorSource!

    init(_ socket: SharedDescriptor, ended: @escaping (Attempt) -> Void) throws(Errno) {
        self.socket = socket
        source = DescriptorSource(FileDescriptor(rawValue: socket.number), for: .writable) {
            [weak self] _, _ in
            if let self { ended(self) }
        }
        try RunLoop.current.add(source, forMode: .default)
    }

    deinit {
        // In a child of fork(2) the registration is the parent's.
        if source.loop?.inbox.belongsToParent != true { source.cancel() }
    }
}

extension [SocketAddress] {
    /// The addresses in the order in which to try them: families alternate, so that a family without a route
    /// delays only every other attempt (RFC 8305, section 4).
    ///
    /// The family of the first address comes first. Addresses of one family keep their order, which the
    /// resolver provides according to RFC 6724.
    ///
    /// - Parameter firstCount: The number of addresses of the first family that come before one of another
    ///   family.
    package func interleavingFamilies(firstCount: Int = 1) -> [SocketAddress] {
        guard let family = first?.family else { return [] }
        var preferred = filter { $0.family == family }[...]
        var others = filter { $0.family != family }[...]
        var result = Array(preferred.prefix(Swift.max(firstCount, 1)))
        preferred = preferred.dropFirst(result.count)
        while let other = others.popFirst() {
            result.append(other)
            if let next = preferred.popFirst() { result.append(next) }
        }
        return result + preferred
    }
}
