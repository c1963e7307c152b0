import Glibc
import SystemPackage

/// Resolves the names of hosts and services without blocking the run loop.
///
/// It calls getaddrinfo(3), so it gives the same answers as other programs on the machine: from hosts(5),
/// DNS, and the other services in nsswitch.conf(5). Up to eight lookups run concurrently on queues of the
/// resolver; further ones wait. The addresses are in the order of RFC 6724, in which to try them.
///
/// In async code, use ``resolve(host:port:family:timeout:)``; a callback on a loop needs no task:
///
/// ```swift
/// Resolver.resolve(host: "localhost", port: 80) { answer in
///     switch answer {
///     case .success(let addresses): print(addresses)
///     case .failure(let error): print(error)  // resolve localhost: Name or service not known
///     }
///     RunLoop.current.stop()
/// }
/// RunLoop.current.run(in: .default)
/// ```
public enum Resolver {
    /// The transport that a service is for: services(5) lists some services for one of the two only.
    @nonexhaustive public enum Transport: Sendable, Hashable {
        /// TCP.
        case stream
        /// UDP.
        case datagram
    }

    /// At least one address, or an error.
    package typealias Answer = Result<[SocketAddress], IOError>

    /// Resolves the addresses of `host` for the calling thread's loop.
    ///
    /// The lookup continues until its completion has been called, also if it is not retained. If the loop's
    /// thread ends before, the completion is released without having been called.
    ///
    /// - Parameters:
    ///   - host: A name or a numeric address: `example.org`, `127.0.0.1`, `::1`, `fe80::1%eth0`. A numeric
    ///     address needs no thread.
    ///   - port: The port of the addresses.
    ///   - family: The family of the addresses; any by default.
    ///   - modes: The modes of the loop in which the completion is called. The lookup keeps them non-empty
    ///     until then.
    ///   - completion: Called once on the loop's thread with at least one address, or an error, after this
    ///     method has returned, and released there. It may capture anything, and may run the loop.
    /// - Returns: The lookup, which ``Lookup/cancel()`` ends.
    /// - Precondition: `modes` is not empty.
    @discardableResult
    public static func resolve(
        host: String, port: UInt16, family: SocketAddress.Family = .unspecified,
        inModes modes: [RunLoop.Mode] = [.default],
        completion: @escaping (Result<[SocketAddress], IOError>) -> Void
    ) -> Lookup {
        let query = ResolverQuery(host: host, service: .port(port), family: family)
        return Lookup(query, modes, completion: completion)
    }

    /// Resolves the addresses of `host` and the port of `service` for the calling thread's loop.
    ///
    /// The other parameters are those of ``resolve(host:port:family:inModes:completion:)``.
    ///
    /// - Parameters:
    ///   - host: A name or a numeric address.
    ///   - service: The name of a service, such as `https`, or a decimal port number.
    ///   - transport: The transport that the service is for.
    ///   - family: The family of the addresses.
    ///   - modes: The modes of the loop in which the completion is called.
    ///   - completion: Called once on the loop's thread.
    /// - Returns: The lookup.
    @discardableResult
    public static func resolve(
        host: String, service: String, transport: Transport = .stream,
        family: SocketAddress.Family = .unspecified, inModes modes: [RunLoop.Mode] = [.default],
        completion: @escaping (Result<[SocketAddress], IOError>) -> Void
    ) -> Lookup {
        let query = ResolverQuery(host: host, service: .name(service), transport: transport, family: family)
        return Lookup(query, modes, completion: completion)
    }

    /// Resolves the addresses of `host` for the calling task, which needs no loop.
    ///
    /// ```swift
    /// let addresses = try await Resolver.resolve(host: "example.org", port: 443, timeout: .seconds(5))
    /// ```
    ///
    /// - Parameters:
    ///   - host: A name or a numeric address, which needs no thread.
    ///   - port: The port of the addresses.
    ///   - family: The family of the addresses; any by default.
    ///   - timeout: How long to wait; nil for as long as getaddrinfo(3) takes.
    /// - Returns: At least one address, in the order in which to try them.
    /// - Throws: ``IOError``, with ``IOError/Reason/resolver(_:)`` for the resolver's answer, and `Errno.timedOut` after the
    ///   timeout; `CancellationError` as soon as the task is cancelled. A call of getaddrinfo(3) that has begun continues in
    ///   the background, and its answer is discarded.
    nonisolated(nonsending) public static func resolve(
        host: String, port: UInt16, family: SocketAddress.Family = .unspecified, timeout: Duration? = nil
    ) async throws -> [SocketAddress] {
        try await ResolverQuery(host: host, service: .port(port), family: family).answer(timeout: timeout)
    }

    /// Resolves the addresses of `host` and the port of `service` for the calling task, as
    /// ``resolve(host:port:family:timeout:)``.
    nonisolated(nonsending) public static func resolve(
        host: String, service: String, transport: Transport = .stream,
        family: SocketAddress.Family = .unspecified, timeout: Duration? = nil
    ) async throws -> [SocketAddress] {
        let query = ResolverQuery(host: host, service: .name(service), transport: transport, family: family)
        return try await query.answer(timeout: timeout)
    }
}

extension Resolver {
    /// A lookup in progress, whose answer a run loop receives.
    public final class Lookup: Sendable {
        private let host: String
        /// Keeps the modes non-empty, and delivers the answer.
        private let answers: Mailbox<Answer>
        private let request: ResolverRequest

        init(_ query: ResolverQuery, _ modes: [RunLoop.Mode], completion: @escaping (Answer) -> Void) {
            require(
                !modes.isEmpty, "Resolver.resolve needs at least one mode in which to deliver the answer.")
            host = query.host
            let answers = Mailbox<Answer>(modes, title: "lookup of \(query.host)", account: "lookup") {
                answers, answer in
                answers.close()
                completion(answer)
            }
            self.answers = answers
            request = ResolverRequest(query) { answers.post($0) }
            if let answer = query.numericAnswer {
                request.finish(.success(answer))
            } else if answers.isOpen {
                ResolverQueue.shared.add(request)
            }
        }

        /// Cancels the lookup and releases its completion. Has no effect once the completion was called. Any
        /// thread.
        ///
        /// If this is called on the loop's thread, the completion is not called afterwards. If it is called
        /// on another thread, the completion may just be running. A call of getaddrinfo(3) that has begun
        /// continues in the background, and its answer is discarded.
        public func cancel() {
            request.cancel()
            answers.close()
        }

        /// Says in a sentence why the completion is not being called; for a person, so the wording may change.
        ///
        /// May be called from any thread.
        ///
        /// ```swift
        /// print(lookup.explain())  // The lookup of example.org has been waiting for getaddrinfo(3) for 4.8 s.
        /// ```
        public func explain() -> String {
            guard answers.isOpen else {
                return
                    "The lookup of \(host) is over: its completion was called, it was cancelled, or its loop has ended."
            }
            if let reason = answers.reasonForDelay {
                return "The lookup of \(host) has its answer: \(reason)."
            }
            guard let start = request.start else {
                return ResolverQueue.shared.isBusy
                    ? "The lookup of \(host) waits: \(ResolverQueue.width) others are in progress."
                    : "The lookup of \(host) is about to begin."
            }
            let time = start.duration(to: .now).rounded
            return "The lookup of \(host) has been waiting for getaddrinfo(3) for \(time)."
        }
    }
}
