import Glibc
package import Reactor
import SystemPackage

/// The hosts of a simulation and what connects them. Real Unix-domain sockets stand for those of the code under test.
///
/// `@unchecked Sendable`: `TimeDomain` gives it only to code on its thread, and ``World`` requires that thread.
final class SimulatedNetwork: Network, @unchecked Sendable {
    private static let count = Mutex(0)

    /// Passes bytes on, and does what the library does on its own threads otherwise.
    let libraryLoop = LibraryLoop()
    private let clocks: ReplacedClocks
    private let start: Int64
    /// The prefix of the sockets' names.
    let namePrefix: String
    private var nameCount = 0

    private(set) var hosts: [Host] = []
    var plan: FaultPlan
    /// For the library's own random numbers.
    private var generator: SeededGenerator
    var link = World.Link()
    var links: [HostPair: World.Link] = [:]
    var partitions: Set<HostPair> = []
    var faults = World.Faults()
    private(set) var trace: [String] = []

    var listeners: [SimulatedListener] = []
    var listenerCount = 0
    var connections: [SimulatedConnection] = []
    var connectionCount = 0
    private var lookupCount = 0
    /// Those that were not accepted yet, by the name of the relay's socket.
    var pending: [SocketAddress: SimulatedConnection] = [:]
    /// The addresses of connections' ends, by file.
    var ends: [UInt64: (local: SocketAddress, peer: SocketAddress)] = [:]
    /// How many descriptors more than one the library has, by file.
    var duplicateCounts: [UInt64: Int] = [:]
    var datagramSockets: [SimulatedDatagramSocket] = []
    var datagramCount = 0
    private var lastPorts: [Int: UInt16] = [:]
    private var hasEnded = false

    init(_ clocks: ReplacedClocks, seed: UInt64, kept: [Fault]?) {
        self.clocks = clocks
        start = clocks.now
        plan = FaultPlan(seed: seed, kept: kept)
        generator = plan.generator(.library)
        let number = Self.count.withLock { count in
            count += 1
            return count
        }
        namePrefix = "reactor-simulation.\(getpid()).\(number)."
        // The library's own threads have the simulation's time, and so has the loop in their place.
        clocks.enter(libraryLoop.runLoop)
        _ = addHost("localhost", [])
    }

    /// Ends all connections, so that the code on both ends finds out.
    func endConnections() {
        libraryLoop.asCurrent { for connection in connections { connection.end() } }
        (connections, pending) = ([], [:])
    }

    /// Ends what the library still does.
    func end() {
        hasEnded = true
        libraryLoop.end()
        clocks.leave(libraryLoop.runLoop)
        datagramSockets = []
    }

    // MARK: Its state

    /// Requires the thread of the simulation.
    func requireThread() {
        precondition(libraryLoop.isOnThread, "A World must be used on the thread that called withSimulation.")
    }

    private func requireInUse() {
        requireThread()
        precondition(!hasEnded, "A World is used after its simulation has ended.")
    }

    /// Requires that the hosts are of this network.
    func require(_ hosts: Host...) {
        for host in hosts {
            precondition(
                self.hosts.indices.contains(host.number) && self.hosts[host.number] === host,
                "The host \(host.name) belongs to another World.")
        }
    }

    /// Changes what the test sets, and applies it to the connections.
    func change(_ change: (SimulatedNetwork) -> Void) {
        requireInUse()
        libraryLoop.asCurrent {
            change(self)
            for connection in connections { connection.update() }
        }
    }

    /// Adds an event to the ``trace``.
    func note(_ event: String) { trace.append("\(Duration.nanoseconds(clocks.now - start)): \(event)") }

    /// Decides whether something happens to a subject. Returns it if it does.
    func draw(_ kind: Fault.Kind, _ probability: Double, _ subject: Fault.Subject) -> Fault? {
        guard let fault = plan.draw(kind, probability, subject) else { return nil }
        note("fault \(fault)")
        return fault
    }

    func occurs(_ kind: Fault.Kind, _ probability: Double, _ subject: Fault.Subject) -> Bool {
        draw(kind, probability, subject) != nil
    }

    /// Calls `body` on the library loop after a latency.
    func after(_ delay: Duration, _ body: @escaping () -> Void) {
        libraryLoop.asCurrent { _ = Timer.scheduled(after: delay) { _ in body() } }
    }

    func link(_ first: Host, _ second: Host) -> World.Link {
        if first === second, first !== hosts[0] { return World.Link() }
        return links[HostPair(first, second)] ?? link
    }

    func isPartitioned(_ first: Host, _ second: Host) -> Bool { partitions.contains(HostPair(first, second)) }

    /// Sets the wall clock by up to an hour, if the seed says so.
    func jumpClock(_ subject: Fault.Subject) {
        guard let fault = draw(.clockJump, faults.clockJumps, subject) else { return }
        var generator = plan.generator(fault)
        _ = generator.next()
        let jump = Duration.seconds(Int.random(in: -3600...3600, using: &generator))
        (currentTimeSource as? TimeDomain)?.setWallClock(
            to: .nanoseconds(clocks.now + clocks.lead(of: CLOCK_REALTIME)) + jump)
    }

    func random(upTo limit: Int128) -> Int128 { .random(in: 0...limit, using: &generator) }

    // MARK: Hosts and addresses

    var currentHost: NetworkHost { here }

    /// The host that the calling code belongs to.
    var here: Host {
        guard let host = Host.current else { return hosts[0] }
        require(host)
        return host
    }

    func addHost(_ name: String, _ texts: [String]) -> Host {
        requireInUse()
        var addresses: [SocketAddress] = []
        for text in texts {
            guard let address = SocketAddress(text, port: 0)?.unmapped else {
                preconditionFailure("World.host(_:_:) needs numeric addresses, not \(text).")
            }
            let isOfOneHost = !address.isLoopback && !address.isAny
            precondition(
                isOfOneHost,
                "World.host(_:_:): \(text) is a loopback or wildcard address, and no host's.")
            precondition(
                owner(of: address) == nil && !addresses.contains(address),
                "The address \(text) is given twice in a simulation.")
            addresses.append(address)
        }
        if addresses.isEmpty {
            var number = hosts.count
            repeat {
                number += 1
                addresses = [
                    .ipv4(0x0a00_0000 + UInt32(number), port: 0),
                    .ipv6(0xfd00 << 112 + UInt128(number), port: 0),
                ]
            } while addresses.contains { owner(of: $0) != nil }
        }
        let host = Host(name, addresses, hosts.count)
        hosts.append(host)
        return host
    }

    private func owner(of address: SocketAddress) -> Host? {
        let address = address.unmapped.with(port: 0)
        return hosts.first { $0.addresses.contains(address) }
    }

    /// The host that `address` belongs to as seen from `host`, and the address that `host` sends from.
    func route(from host: Host, to address: SocketAddress) throws(Errno) -> (
        host: Host, source: SocketAddress
    ) {
        let target = address.unmapped
        if target.isLoopback || target.isAny {
            return (host, target.family == .ipv4 ? .ipv4Loopback(port: 0) : .ipv6Loopback(port: 0))
        }
        let local = host.addresses.first { $0.family == target.family }
        if let owner = owner(of: target) {
            guard let local else { throw .networkUnreachable }
            return (owner, owner === host ? target.with(port: 0) : local)
        }
        // An address of no host, to which the test has bound a socket.
        guard isBound(target) else { throw local == nil ? .networkUnreachable : .noRouteToHost }
        return (hosts[0], host === hosts[0] ? target.with(port: 0) : local ?? target.with(port: 0))
    }

    private func isBound(_ address: SocketAddress) -> Bool {
        let address = address.with(port: 0)
        return listeners.contains { $0.address.with(port: 0) == address }
            || datagramSockets.contains { $0.local?.with(port: 0) == address }
    }

    /// Whether `host` may bind a socket to `address`.
    func checkBinding(_ address: SocketAddress, on host: Host) throws(Errno) {
        guard !address.isAny, !address.isLoopback else { return }
        let owner = owner(of: address)
        guard owner === host || owner == nil && host === hosts[0] else { throw .addressNotAvailable }
    }

    /// The next port of `host` that the kernel would choose.
    func choosePort(on host: Host) -> UInt16 {
        let last = lastPorts[host.number] ?? 49_151
        let port = last == .max ? 49_152 : last + 1
        lastPorts[host.number] = port
        return port
    }

    /// A name for a socket that no other has; `address` for one of datagrams.
    func nextName(_ address: SocketAddress? = nil) throws(Errno) -> SocketAddress {
        nameCount += 1
        return try SocketAddress(
            unixAbstractName: "\(namePrefix)\(nameCount)\(address.map { "|\($0)" } ?? "")".utf8)
    }

    func localAddress(of socket: FileDescriptor) -> SocketAddress? {
        let file = inodeNumber(of: socket.rawValue)
        if let end = ends[file] { return end.local }
        if let listener = listeners.first(where: { $0.file == file }) { return listener.address }
        return datagramSockets.first { $0.file == file }.map { $0.local ?? $0.unbound }
    }

    func peerAddress(of socket: FileDescriptor) -> SocketAddress? {
        let file = inodeNumber(of: socket.rawValue)
        return ends[file]?.peer ?? datagramSockets.first { $0.file == file }?.peer
    }

    // MARK: Names

    func resolve(
        _ name: String, port: UInt16, _ family: SocketAddress.Family,
        completion: @escaping @Sendable ([SocketAddress], CInt) -> Void
    ) {
        lookupCount += 1
        note("lookup of \(name)")
        let addresses = addresses(of: name).filter { family == .unspecified || $0.family == family }
            .map { $0.with(port: port) }
        if SocketAddress(name, port: port) != nil {
            return after(.zero) { completion(addresses, addresses.isEmpty ? EAI_NONAME : 0) }
        }
        let fails = occurs(.failedLookup, faults.failedLookups, .lookup(lookupCount))
        let isSlow = occurs(.slowLookup, faults.slowLookups, .lookup(lookupCount))
        var generator = plan.generator(.lookup, UInt64(lookupCount))
        let delay = link.latency.random(&generator) * 2 + (isSlow ? .seconds(5) : .zero)
        after(delay) {
            if fails { return completion([], EAI_AGAIN) }
            completion(addresses, addresses.isEmpty ? EAI_NONAME : 0)
        }
    }

    private func addresses(of name: String) -> [SocketAddress] {
        if let address = SocketAddress(name, port: 0) { return [address] }
        // A dot at its end tells a name of DNS that it is complete.
        let name = (name.hasSuffix(".") ? String(name.dropLast()) : name).lowercased()
        if name == "localhost" || name.hasSuffix(".localhost") {
            return [.ipv6Loopback(port: 0), .ipv4Loopback(port: 0)]
        }
        return hosts.filter { $0.name.lowercased() == name }.flatMap(\.addresses)
    }
}

extension SocketAddress {
    package func with(port: UInt16) -> SocketAddress {
        if let ipv4 { return .ipv4(ipv4, port: port) }
        return .ipv6(ipv6 ?? 0, port: port, scope: scope ?? 0)
    }

    /// Whether a socket that is bound to this address gets what is sent to `target`, which is not mapped.
    func includes(_ target: SocketAddress, isIPv6Only: Bool = false) -> Bool {
        guard target.port == port else { return false }
        if unmapped == target { return true }
        return isAny && (family == target.family || family == .ipv6 && !isIPv6Only)
    }

    /// The IPv4 address of one that is mapped into IPv6.
    var unmapped: SocketAddress { embeddedIPv4.map { .ipv4($0, port: port ?? 0) } ?? self }

    /// An IPv4 address, mapped into IPv6.
    var mapped: SocketAddress { ipv4.map { .ipv6(0xffff << 32 + UInt128($0), port: port ?? 0) } ?? self }
}

extension ClosedRange<Duration> {
    func random(_ generator: inout SeededGenerator) -> Duration {
        let range = lowerBound.wholeNanoseconds...upperBound.wholeNanoseconds
        return .nanoseconds(
            range.lowerBound == range.upperBound ? range.lowerBound : .random(in: range, using: &generator))
    }
}
