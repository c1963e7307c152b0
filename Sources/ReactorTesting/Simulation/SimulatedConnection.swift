import Glibc
import Reactor
import SystemPackage

/// A listening socket of a simulation.
struct SimulatedListener {
    let number: Int
    let host: Host
    /// The address that it is bound to, with its port.
    let address: SocketAddress
    let isIPv6Only: Bool
    let reusesPort: Bool
    let descriptor: CInt
    let file: UInt64
    /// The address of the real socket.
    let name: SocketAddress

    /// Whether it is still open.
    var isOpen: Bool { inodeNumber(of: descriptor) == file }

    /// Whether it accepts connections to `address`, which is not mapped.
    func accepts(_ target: SocketAddress) -> Bool { address.includes(target, isIPv6Only: isIPv6Only) }
}

extension SimulatedNetwork {
    func listen(
        at address: SocketAddress, backlog: CInt, isIPv6Only: Bool, reusesPort: Bool
    ) throws(Errno) -> FileDescriptor {
        let host = here
        try checkBinding(address, on: host)
        listeners.removeAll { !$0.isOpen }
        let address = address.port == 0 ? address.with(port: choosePort(on: host)) : address
        let isTaken = listeners.contains { other in
            other.host === host && !(reusesPort && other.reusesPort)
                && (other.accepts(address.unmapped)
                    || address.includes(other.address.unmapped, isIPv6Only: isIPv6Only))
        }
        if isTaken { throw .addressInUse }
        let descriptor = try FileDescriptor.socket(.unix, SOCK_STREAM)
        do throws(Errno) {
            let name = try nextName()
            try descriptor.bind(to: name)
            try SystemCall.make { Glibc.listen(descriptor.rawValue, backlog) }
            listenerCount += 1
            listeners.append(
                SimulatedListener(
                    number: listenerCount, host: host, address: address, isIPv6Only: isIPv6Only,
                    reusesPort: reusesPort,
                    descriptor: descriptor.rawValue, file: inodeNumber(of: descriptor.rawValue), name: name))
        } catch {
            try? descriptor.close()
            throw error
        }
        note("listening at \(address)")
        return descriptor
    }

    func willAccept(from listener: CInt) throws(Errno) {
        guard faults.tooManyFiles > 0 else { return }
        let file = inodeNumber(of: listener)
        guard let number = listeners.first(where: { $0.file == file })?.number,
            occurs(.tooManyFiles, faults.tooManyFiles, .listener(number))
        else { return }
        throw .tooManyOpenFiles
    }

    func accepted(_ descriptor: FileDescriptor, from peer: SocketAddress) -> SocketAddress {
        guard let connection = pending.removeValue(forKey: peer) else { return peer }
        ends[inodeNumber(of: descriptor.rawValue)] = (connection.target, connection.serversPeer)
        libraryLoop.asCurrent { connection.accepted(descriptor.rawValue) }
        return connection.serversPeer
    }

    func willEndOutput(of socket: CInt) {
        let file = inodeNumber(of: socket)
        for connection in connections { connection.willEndOutput(of: file) }
    }

    func willReset(_ socket: CInt) {
        let file = inodeNumber(of: socket)
        for connection in connections { connection.willReset(file) }
    }

    func hasDuplicated(_ descriptor: CInt) { duplicateCounts[inodeNumber(of: descriptor), default: 0] += 1 }

    func close(_ descriptor: CInt) {
        let file = inodeNumber(of: descriptor)
        _ = Glibc.close(descriptor)
        if let count = duplicateCounts[file] {
            duplicateCounts[file] = count > 1 ? count - 1 : nil
            return
        }
        ends[file] = nil
        for connection in connections { connection.hasClosed(file) }
    }

    func connect(
        to address: SocketAddress, from host: NetworkHost?,
        completion: @escaping (Result<FileDescriptor, Errno>) -> Void
    ) throws(Errno) -> AnyObject {
        let host = host as? Host ?? here
        connectionCount += 1
        if occurs(.tooManyFiles, faults.tooManyFiles, .connection(connectionCount)) {
            throw .tooManyOpenFiles
        }
        let route = try route(from: host, to: address)
        let attempt = ConnectionAttempt(
            connectionCount, from: (host, route.source.with(port: choosePort(on: host))),
            to: (route.host, address), plan.generator(.attempt, UInt64(connectionCount)), completion)
        note("connection \(attempt.number) from \(attempt.source) to \(address)")
        send(attempt)
        return attempt
    }

    /// Performs a step of an attempt after a delay, unless that has ended.
    private func after(
        _ delay: Duration, _ attempt: ConnectionAttempt,
        _ step: @escaping (SimulatedNetwork, ConnectionAttempt) -> Void
    ) {
        after(delay) { [weak self, weak attempt] in if let self, let attempt { step(self, attempt) } }
    }

    /// Sends the packet that begins a connection, again and again while it is lost.
    private func send(_ attempt: ConnectionAttempt) {
        let (client, server) = (attempt.client, attempt.server)
        let link = link(client, server)
        let isLost = isPartitioned(client, server) || occurs(.loss, link.loss, .connection(attempt.number))
        guard isLost else {
            return after(link.latency.random(&attempt.generator), attempt) { $0.arrive($1) }
        }
        retry(attempt) { $0.send($1) }
    }

    /// As TCP: after one second, two more, and so on, six times (tcp_syn_retries, tcp(7)). Attempts that began at once are
    /// repeated one after another: the server accepts a connection in between, so that a full backlog has room for the next.
    private func retry(
        _ attempt: ConnectionAttempt, _ again: @escaping (SimulatedNetwork, ConnectionAttempt) -> Void
    ) {
        attempt.tryCount += 1
        let isLast = attempt.tryCount > 6
        let delay = Duration.seconds(1 << (attempt.tryCount - 1)) + .nanoseconds(attempt.number)
        after(delay, attempt) {
            if isLast { $0.finish($1, .failure(.timedOut)) } else { again($0, $1) }
        }
    }

    private func arrive(_ attempt: ConnectionAttempt) {
        let target = attempt.target.unmapped
        let listener = listeners.last { $0.host === attempt.server && $0.accepts(target) && $0.isOpen }
        guard let listener, !occurs(.refusal, faults.refusals, .connection(attempt.number)) else {
            return answer(attempt, .failure(.connectionRefused))
        }
        do throws(Errno) {
            attempt.connection = try SimulatedConnection(attempt, to: listener, of: self)
            answer(attempt, .success(()))
        } catch .resourceTemporarilyUnavailable {
            // The backlog is full.
            retry(attempt) { $0.send($1) }
        } catch {
            answer(attempt, .failure(error))
        }
    }

    private func answer(_ attempt: ConnectionAttempt, _ outcome: Result<Void, Errno>) {
        let link = link(attempt.client, attempt.server)
        if isPartitioned(attempt.client, attempt.server) {
            return retry(attempt) { $0.answer($1, outcome) }
        }
        after(link.latency.random(&attempt.generator), attempt) { $0.finish($1, outcome) }
    }

    private func finish(_ attempt: ConnectionAttempt, _ outcome: Result<Void, Errno>) {
        switch outcome {
        case .failure(let error):
            note("connection \(attempt.number) fails: \(error)")
            attempt.completion(.failure(error))
        case .success:
            guard let connection = attempt.connection.take() else { return }
            note("connection \(attempt.number) is made")
            attempt.completion(.success(FileDescriptor(rawValue: connection.testedEnd)))
        }
    }
}

/// A connection that is being made, until it is released.
final class ConnectionAttempt {
    let number: Int
    let client: Host
    /// The client's address.
    let source: SocketAddress
    let server: Host
    let target: SocketAddress
    var generator: SeededGenerator
    let completion: (Result<FileDescriptor, Errno>) -> Void
    var tryCount = 0
    /// The connection that the client does not know of yet.
    var connection: SimulatedConnection?

    init(
        _ number: Int, from client: (host: Host, address: SocketAddress),
        to server: (host: Host, address: SocketAddress), _ generator: SeededGenerator,
        _ completion: @escaping (Result<FileDescriptor, Errno>) -> Void
    ) {
        self.number = number
        (self.client, source) = client
        (self.server, target) = server
        (self.generator, self.completion) = (generator, completion)
    }

    deinit { connection?.closeTestedEnd() }
}

/// A connection between two hosts: two real ones, with a relay for each direction between them.
final class SimulatedConnection {
    let number: Int
    private let client: Host
    private let server: Host
    /// The address that the client connects to.
    let target: SocketAddress
    /// The client's address as the server sees it.
    let serversPeer: SocketAddress
    private let pairs: (client: SocketPair, server: SocketPair)
    private let relays: [Relay]
    /// The file of the listening socket.
    private let listener: UInt64
    private unowned let network: SimulatedNetwork

    var testedEnd: CInt { pairs.client.testedEnd }
    private var hasEnded: Bool { relays.allSatisfy(\.hasEnded) }

    init(_ attempt: ConnectionAttempt, to listener: SimulatedListener, of network: SimulatedNetwork)
        throws(Errno)
    {
        let name = try network.nextName()
        // The server's first, which fails if the backlog is full.
        let servers = try SocketPair(from: name, to: listener.name)
        let clients = try SocketPair()
        pairs = (clients, servers)
        self.listener = listener.file
        number = attempt.number
        (client, server, self.network) = (attempt.client, attempt.server, network)
        let isMapped = listener.address.family == .ipv6
        target = isMapped ? attempt.target.mapped : attempt.target.unmapped
        serversPeer = isMapped ? attempt.source.mapped : attempt.source
        relays = Relay.both(clients, servers) {
            network.plan.generator($0 == 0 ? .fromClient : .fromServer, UInt64(attempt.number))
        }
        network.connections.removeAll { $0.hasEnded }
        network.connections.append(self)
        network.pending[name] = self
        network.ends[inodeNumber(of: clients.testedEnd)] = (attempt.source, attempt.target)
        update()
        do throws(Errno) { for relay in relays { try begin(relay) } } catch {
            end()
            throw error
        }
    }

    private func begin(_ relay: Relay) throws(Errno) {
        let (network, number, isFromClient) = (network, number, relay === relays[0])
        relay.willDeliver = { [weak relay, unowned network] count in
            let what = count == 0 ? "the end" : "\(count) bytes"
            network.note("connection \(number): \(what) from the \(isFromClient ? "client" : "server")")
            network.jumpClock(.connection(number))
            if network.occurs(.reset, network.faults.resets, .connection(number)) { relay?.reset() }
        }
        try relay.begin()
    }

    /// Applies what connects the hosts.
    func update() {
        let (link, isStalled) = (network.link(client, server), network.isPartitioned(client, server))
        for relay in relays {
            (relay.latency, relay.chunkSizes) = (link.latency, link.chunkSizes)
            if relay.isStalled != isStalled { relay.isStalled = isStalled }
        }
    }

    /// The owner of an end resets the connection, if the file is one of its ends.
    func willReset(_ file: UInt64) {
        for (pair, relay) in zip([pairs.client, pairs.server], relays) where pair.testedFile == file {
            relay.endsWithReset = true
        }
    }

    /// The owner of an end ends its output, if the file is one of its ends.
    func willEndOutput(of file: UInt64) {
        for pair in [pairs.client, pairs.server] {
            if pair.testedFile == file { pair.willEndOutput() }
        }
    }

    /// Called when the last descriptor of a file has been closed.
    func hasClosed(_ file: UInt64) {
        if pairs.client.testedFile == file { pairs.client.testedEndWasClosed() }
        // The server's end is closed with the listener if it was not accepted.
        if pairs.server.testedFile == file || pairs.server.testedEnd < 0 && listener == file {
            pairs.server.testedEndWasClosed()
        }
    }

    func accepted(_ descriptor: CInt) { pairs.server.accepted(descriptor) }

    /// The client has given up before it was connected.
    func closeTestedEnd() { pairs.client.closeTestedEnd() }

    func end() { for relay in relays { relay.cut() } }
}
