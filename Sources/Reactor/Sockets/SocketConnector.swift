import Synchronization
import SystemPackage

/// A socket that has a peer; closed when it is dropped.
struct ConnectedSocket: Sendable {
    let socket: DescriptorHolder
    let peer: SocketAddress
}

/// An attempt to reach a host, on the sockets' own thread: it looks up the name, and has the addresses race.
final class SocketConnector: Sendable {
    typealias Outcome = Result<ConnectedSocket, any Error>

    private struct State {
        /// Nil once it has been called, or will not be. In a box of its own, as a ``Callback`` is.
        var completion: Completion?
        var request: ResolverRequest?
        var race: (loop: RunLoop, race: LoopBound<SocketRace>)?
    }

    private struct Completion: Sendable {
        let closure: @Sendable (Outcome) -> Void
    }

    private let origin: SocketChannel.Origin
    private let deadline: Deadline
    private let state: Mutex<State>

    /// - Parameters:
    ///   - timeout: How long everything together may take.
    ///   - completion: Called once, on any thread, unless ``cancel()`` is first.
    init(
        to origin: SocketChannel.Origin, timeout: Duration, completion: @escaping @Sendable (Outcome) -> Void
    ) {
        self.origin = origin
        deadline = .now.advanced(by: timeout)
        state = Mutex(State(completion: Completion(closure: completion)))
    }

    /// Begins, unless another thread has cancelled this already.
    func start() {
        do throws(Errno) {
            let loop = try ResidentThread.streams.runLoop()
            loop.perform { [self] in begin(on: loop) }
        } catch {
            finish(.failure(error))
        }
    }

    /// Lets go of everything; a completion that has begun may still be running.
    func cancel() {
        let dropped = state.withLock { state in
            defer { state = State() }
            return state
        }
        dropped.request?.cancel()
        if let (loop, race) = dropped.race { loop.perform { race.value.end() } }
    }

    private func begin(on loop: RunLoop) {
        // Somebody who has given up does not start anything.
        guard state.withLock({ $0.completion != nil }) else { return }
        let race = SocketRace(until: deadline) { [weak self] outcome in self?.finish(outcome) }
        let isWanted = state.withLock { state in
            guard state.completion != nil else { return false }
            state.race = (loop, LoopBound(race, owner: loop.identity))
            return true
        }
        guard isWanted else { return race.end() }
        switch origin {
        case .descriptor: break
        case .address(let address): race.run(to: [address])
        case .host(let host, let port):
            resolve(host, port, on: loop, for: LoopBound(race, owner: loop.identity))
        }
    }

    private func resolve(_ host: String, _ port: UInt16, on loop: RunLoop, for race: LoopBound<SocketRace>) {
        let request = Resolver.resolveOnAnyThread(host: host, port: port) { [weak self] answer in
            switch answer {
            case .failure(let error): self?.finish(.failure(error))
            case .success(let addresses):
                loop.perform { race.value.run(to: addresses.interleavingFamilies()) }
            }
        }
        let isWanted = state.withLock { state in
            guard state.completion != nil else { return false }
            state.request = request
            return true
        }
        // Cancelled meanwhile, when there was no request to cancel yet.
        if !isWanted { request.cancel() }
    }

    private func finish(_ outcome: Outcome) {
        let old = state.withLock { state in
            defer { state = State() }
            return state
        }
        if let (loop, race) = old.race { loop.perform { race.value.end() } }
        old.request?.cancel()
        old.completion?.closure(outcome)
    }
}
