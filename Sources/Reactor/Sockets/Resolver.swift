/// Finds the addresses of hosts and services by their names, while the run loop goes on.
///
/// It stands on getaddrinfo(3), and so answers as all programs of the machine do: hosts(5), DNS, and whatever
/// else nsswitch.conf(5) names. Up to eight lookups go on side by side, on queues of the resolver's own; more
/// wait for one of them to end. Answers are in the order of RFC 6724: to be tried one after the other.
///
/// ```swift
/// Resolver.resolve(host: "localhost", port: 80) { answer in
///     switch answer {
///     case .success(let addresses): print(addresses)
///     case .failure(let error): print("localhost: \(error)")
///     }
///     RunLoop.current.stop()
/// }
/// RunLoop.current.run(in: .default)
/// ```
public enum Resolver {
    /// What a service's name is looked up for: services(5) has some for one of the two only.
    public enum Transport: Sendable, Hashable {
        /// TCP.
        case stream
        /// UDP.
        case datagram
    }

    /// What a completion receives: at least one address, or why there is none.
    public typealias Answer = Result<[SocketAddress], ResolverError>

    /// Looks up the addresses of `host`, with a port that is known, for the calling thread's loop.
    ///
    /// The lookup lives until its completion has been called, whether anybody holds it or not. If the loop's
    /// thread ends before, the closure is let go of without having been called.
    ///
    /// - Parameters:
    ///   - host: A name, or numbers: `example.org`, `127.0.0.1`, `::1`, `fe80::1%eth0`. Numbers take no thread.
    ///   - port: The port of the addresses.
    ///   - family: The kind of addresses; any unless one is named.
    ///   - modes: In which modes of the loop the completion is called. They are kept from being empty until
    ///     then.
    ///   - completion: Called on the loop's thread, once, and not before this has returned; let go of there, too.
    ///     It may capture what it likes, and may run the loop.
    /// - Returns: The lookup: ``Lookup/cancel()`` ends it.
    /// - Precondition: At least one mode.
    @discardableResult
    public static func resolve(
        host: String, port: UInt16, family: SocketAddress.Family = .unspecified,
        inModes modes: [RunLoop.Mode] = [.default], completion: @escaping (Answer) -> Void
    ) -> Lookup {
        let query = ResolverQuery(host: host, service: .port(port), family: family)
        return Lookup(query, on: .current, modes, completion: completion)
    }

    /// Looks up the addresses of `host`, and the port of `service`, for the calling thread's loop.
    ///
    /// The other parameters are those of ``resolve(host:port:family:inModes:completion:)``.
    ///
    /// - Parameters:
    ///   - host: A name, or numbers.
    ///   - service: The name of a service, such as `https`, or a port in decimal digits.
    ///   - transport: What the service is looked up for.
    ///   - family: The kind of addresses.
    ///   - modes: In which modes of the loop the completion is called.
    ///   - completion: Called on the loop's thread, once.
    /// - Returns: The lookup.
    @discardableResult
    public static func resolve(
        host: String, service: String, transport: Transport = .stream,
        family: SocketAddress.Family = .unspecified, inModes modes: [RunLoop.Mode] = [.default],
        completion: @escaping (Answer) -> Void
    ) -> Lookup {
        let query = ResolverQuery(host: host, service: .name(service), transport: transport, family: family)
        return Lookup(query, on: .current, modes, completion: completion)
    }

    /// Looks up the addresses of `host` for whoever it is: `completion` is called on any thread, once, and not
    /// before this has returned unless that thread is another.
    static func resolveOnAnyThread(
        host: String, port: UInt16, completion: @escaping @Sendable (Answer) -> Void
    ) -> ResolverRequest {
        let request = ResolverRequest(
            ResolverQuery(host: host, service: .port(port)), completion: completion)
        if let answer = request.query.numericAnswer {
            DispatchWorkers.run { request.give(.success(answer)) }
        } else {
            ResolverQueue.shared.add(request)
        }
        return request
    }
}
