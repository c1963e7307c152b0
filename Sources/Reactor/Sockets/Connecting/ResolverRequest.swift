import CReactorLinux
import Dispatch
import Glibc
import Synchronization
import SystemPackage

/// The arguments of a call to getaddrinfo(3).
struct ResolverQuery: Sendable {
    enum Service: Sendable {
        case port(UInt16)
        case name(String)
    }

    var host: String
    let service: Service
    var transport = Resolver.Transport.stream
    var family = SocketAddress.Family.unspecified

    /// The answer for a numeric address and port, which takes no lookup.
    var numericAnswer: [SocketAddress]? {
        guard case .port(let port) = service, let address = SocketAddress(host, port: port),
            family == .unspecified || family == address.family
        else { return nil }
        return [address]
    }

    /// Resolves the query on the calling thread, blocking it.
    func resolve() -> Resolver.Answer {
        guard !host.isEmpty, !host.utf8.contains(0) else { return .failure(error(.resolver(EAI_NONAME))) }
        if case .name(let name) = service, name.isEmpty || name.utf8.contains(0) {
            return .failure(error(.resolver(EAI_SERVICE)))
        }
        // AI_ADDRCONFIG skips the families that the host has no address for. It does not count loopback addresses: so it is
        // not used for localhost, and a name that is not found is looked up again without it.
        guard family == .unspecified, !isLocalHost else { return resolve(flags: 0) }
        let answer = resolve(flags: AI_ADDRCONFIG)
        guard case .failure(let error) = answer else { return answer }
        // EAI_NONAME, EAI_NODATA and EAI_ADDRFAMILY: Swift's Glibc module lacks the last two.
        let isRepeated = [-2, -5, -9].map(IOError.Reason.resolver).contains(error.reason)
        return isRepeated ? resolve(flags: 0) : answer
    }

    /// Whether the name is reserved for this machine (RFC 6761).
    private var isLocalHost: Bool {
        let name = host.lowercased()
        return ["localhost", "localhost."].contains { name == $0 || name.hasSuffix("." + $0) }
    }

    private func resolve(flags: CInt) -> Resolver.Answer {
        let (name, serviceFlags): (String, CInt) =
            switch service {
            case .port(let port): ("\(port)", AI_NUMERICSERV)
            case .name(let name): (name, 0)
            }
        let type = CInt((transport == .stream ? SOCK_STREAM : SOCK_DGRAM).rawValue)
        let answer = unsafe reactor_resolve(
            host, name, flags | serviceFlags, CInt(family.rawValue), type)
        defer { unsafe free(answer.addresses) }
        let (code, systemError) = unsafe (answer.code, answer.system_error)
        guard code == 0 else {
            return .failure(
                error(
                    code == EAI_SYSTEM
                        ? .system(Errno(rawValue: systemError)) : .resolver(code)))
        }
        let found = unsafe UnsafeBufferPointer(start: answer.addresses, count: answer.count)
            .compactMap { SocketAddress($0) }
        // A hosts file may list an address twice.
        var addresses: [SocketAddress] = []
        for address in found where !addresses.contains(address) { addresses.append(address) }
        return .success(addresses)
    }

    fileprivate func error(_ reason: IOError.Reason) -> IOError {
        var subject = host
        if case .name(let name) = service { subject += ", service \(name)" }
        return IOError(.resolve, subject, reason)
    }
}

extension ResolverQuery {
    /// The answer for the calling task.
    nonisolated(nonsending) func answer(timeout: Duration?) async throws -> [SocketAddress] {
        try Task.checkCancellation()
        if let answer = numericAnswer { return answer }
        if let timeout, timeout <= .zero { throw error(.system(.timedOut)) }
        let outcome = AsyncPromise<Resolver.Answer>()
        let request = ResolverRequest(self) { outcome.set($0) }
        let alarm: Alarm?
        do throws(Errno) {
            // A task's first use of libdispatch would end the process if there were no descriptors for it.
            try DispatchWorkers.prepare()
            alarm = try request.alarm(after: timeout)
        } catch {
            throw self.error(.system(error))
        }
        defer { alarm?.end() }
        ResolverQueue.shared.add(request)
        let answer = await withTaskCancellationHandler {
            await outcome.wait()
        } onCancel: {
            request.finish(.failure(error(.system(.canceled))))
        }
        do throws(IOError) { return try answer.get() } catch {
            throw error.errno == .canceled ? CancellationError() : error
        }
    }
}

/// A lookup whose answer may arrive on any thread.
final class ResolverRequest: Sendable {
    private struct State: Sendable {
        /// Nil once it was called or cancelled.
        var completion: (@Sendable (Resolver.Answer) -> Void)?
        /// When the lookup began.
        var start: Deadline?
    }

    let query: ResolverQuery
    private let state: Mutex<State>

    init(_ query: ResolverQuery, completion: @escaping @Sendable (Resolver.Answer) -> Void) {
        self.query = query
        state = Mutex(State(completion: completion))
    }

    /// When getaddrinfo(3) was called; nil as long as the request waits for others.
    var start: Deadline? { state.withLock { $0.start } }

    /// Resolves the query on the calling thread, unless it was cancelled.
    func resolve() {
        let isWanted = state.withLock { state in
            state.start = .now
            return state.completion != nil
        }
        if isWanted { finish(query.resolve()) }
    }

    /// The alarm that fails the request after `timeout`; nil if that is nil.
    fileprivate func alarm(after timeout: Duration?) throws(Errno) -> Alarm? {
        guard let timeout else { return nil }
        let alarm = Alarm(on: try ResidentThread.streams.runLoop(), after: timeout) { [self] in
            finish(.failure(query.error(.system(.timedOut))))
        }
        alarm.restart()
        return alarm
    }

    func finish(_ answer: Resolver.Answer) {
        let completion = state.withLock { $0.completion.take() }
        completion?(answer)
    }

    /// Releases the completion. It is not called after this, though another thread may just be calling it.
    func cancel() {
        let dropped = state.withLock { $0.completion.take() }
        withExtendedLifetime(dropped) {}
    }
}

extension Network {
    /// Finishes a request, whose service is looked up as without the network.
    fileprivate func resolve(_ request: ResolverRequest) {
        var query = request.query
        (query.host, query.family) = ("127.0.0.1", .ipv4)
        guard case .success(let numeric) = query.resolve(), let port = numeric.first?.port else {
            return request.finish(.failure(request.query.error(.resolver(EAI_SERVICE))))
        }
        resolve(request.query.host, port: port, request.query.family) { addresses, code in
            request.finish(code == 0 ? .success(addresses) : .failure(request.query.error(.resolver(code))))
        }
    }
}

/// Performs lookups, each of which blocks a thread, a few at a time.
final class ResolverQueue: Sendable {
    /// The number of concurrent lookups.
    ///
    /// A lookup whose server is silent takes many seconds (resolv.conf(5): five for each try). The width is
    /// more than work for the processor would need, so that a few slow lookups do not delay the quick ones,
    /// but small enough that a burst of names does not take a thread for each.
    static let width = 8

    static let shared = ResolverQueue(width: width)

    private struct State {
        var pending: [ResolverRequest] = []
        var idleQueues: [DispatchQueue]
    }

    private let state: Mutex<State>

    /// Dispatch starts a thread for a serial queue at once. The blocks of a concurrent queue get one for each
    /// processor, and further ones only after a second.
    init(width: Int) {
        state = Mutex(State(idleQueues: (1...width).map { DispatchQueue(label: "Resolver \($0)") }))
    }

    /// Whether further requests wait.
    var isBusy: Bool { state.withLock { $0.idleQueues.isEmpty } }

    /// Adds a request; requests begin in order.
    func add(_ request: ResolverRequest) {
        if let network = currentTimeSource?.network { return network.resolve(request) }
        let queue = state.withLock { state in
            state.pending.append(request)
            return state.idleQueues.popLast()
        }
        if let queue { DispatchWorkers.run(on: queue) { self.drain(on: queue) } }
    }

    private func drain(on queue: DispatchQueue) {
        while let request = next(for: queue) { request.resolve() }
    }

    private func next(for queue: DispatchQueue) -> ResolverRequest? {
        state.withLock { state in
            guard state.pending.isEmpty else { return state.pending.removeFirst() }
            state.idleQueues.append(queue)
            return nil
        }
    }
}
