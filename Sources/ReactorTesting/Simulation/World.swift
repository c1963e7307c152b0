public import Reactor

/// The network of a simulation, its hosts and its faults.
///
/// Inside `withSimulation`, on its thread, every socket with an IP address belongs to this network: those of `Listener`,
/// `Connection`, the streams of Cocoa and `DatagramSocket`, and so do the names that the `Resolver` looks up. The code of
/// clients and servers is the same as in production.
///
/// ```swift
/// try withSimulation(seed: 17) { world in
///     world.link.latency = .milliseconds(5) ... .milliseconds(80)
///     world.faults.resets = 0.01
///     let (server, client) = (world.host("chat.example"), world.host("laptop"))
///     try server.run { try startServer(port: 7008) }
///     client.run { startClient(of: "chat.example", port: 7008) }
///     world.time.advance(by: .seconds(10))
///     world.partition(server, client)
///     world.time.advance(by: .seconds(60))
///     world.heal()
///     world.time.advance(by: .seconds(10))
/// }
/// ```
///
/// The seed decides everything that the world does, and the order in which loops serve what is ready at the same time. So a
/// simulation with the same seed is the same each time, as ``trace`` shows, if the code under test uses no other threads,
/// hand-offs, files, child processes, `Task.sleep` or random numbers of its own (`Backoff` takes its from the seed; TLS takes
/// OpenSSL's), and does not depend on the order of a set or a dictionary (unless SWIFT_DETERMINISTIC_HASHING=1 is in the
/// environment).
/// When the body returns, its connections end without a fault: their bytes that have not arrived are dropped, and the loop
/// serves what is ready then. What it has left on the loop, such as a timer or a listener, belongs to the next simulation of
/// the thread; a connection that is being made then, and a lookup, are never reported.
///
/// Without hosts of its own a world has one, ``localhost``, which all code belongs to and everything can be connected to.
///
/// ## What differs from a real network
///
/// The sockets are Unix-domain sockets of the process, between which the world passes bytes on. How much a read or a write
/// moves, and when there is room, is the kernel's decision. These things differ:
///
/// - The options of TCP have no effect. Closing does not wait until the peer has acknowledged the bytes, and a reset reaches
///   the peer without a loss of bytes that were sent before.
/// - A peer that has closed its connection, or reset it, is found by the next write, and not by an event, while the input has
///   ended. Closing a connection with unread input ends it, and does not reset it.
/// - A client that finds the backlog of a listener full is connected when it tries again and there is room. The kernel may
///   report it as connected before there is.
/// - A partition does not stop a datagram or an attempt to connect that is in flight when it begins.
/// - A connection waits for as long as a partition lasts: it does not fail after a quarter of an hour.
/// - A datagram that no socket receives is reported by the next `send` of a connected socket, and not by an event. The receive
///   buffer is not full as long as the receiver's loop runs in the socket's mode.
/// - Multicast and broadcast are not supported, nor are the names of services of other machines.
/// - Unix-domain addresses, pipes and files are the kernel's. The clock does not wait for what comes by them, such as the
///   bytes of another thread: hold it (``VirtualTime/hold()``).
/// - A lookup takes twice the latency of ``link``, whatever the links and partitions of hosts are.
///
/// What the library does on threads of its own, such as connecting, is done by the thread of the simulation while its loop
/// waits: a blocking read, write or flush may never return. The same thread runs tasks that would run in the concurrency
/// pool, such as those of `Task.detached` and of actors, but not those of the main actor. `Task.sleep(for:)`, hand-offs, files
/// and child processes take real time, and threads of the test's own are no part of the simulation.
///
/// ``seed`` and ``time`` may be read on any thread. All else is for the thread that has called `withSimulation`, and is changed
/// before the simulation ends; otherwise it traps.
public final class World: Sendable {
    let network: SimulatedNetwork

    init(_ network: SimulatedNetwork, _ time: VirtualTime) {
        (self.network, self.time, seed) = (network, time, network.plan.seed)
    }

    /// The clock of the simulation. The wall clock begins on 1 January 2026.
    public let time: VirtualTime

    /// The seed that decides what happens.
    public let seed: UInt64

    // MARK: Hosts

    /// The host of code that belongs to no other.
    public var localhost: Host {
        network.requireThread()
        return network.hosts[0]
    }

    /// Adds a host.
    ///
    /// - Parameters:
    ///   - name: A name that resolves to the host's addresses on every host. A name of several hosts resolves to the addresses
    ///     of all.
    ///   - addresses: Numeric IPv4 and IPv6 addresses, in the order in which the name resolves to them; one of each if none is
    ///     given: 10.0.0.2 and fd00::2 for the first host. ``localhost`` has 10.0.0.1 and fd00::1.
    /// - Precondition: The addresses are numeric, those of no other host, and no loopback or wildcard addresses.
    public func host(_ name: String, _ addresses: String...) -> Host { network.addHost(name, addresses) }

    // MARK: The network

    /// The link between hosts that have none of their own, and between ``localhost`` and itself. By default it has no latency
    /// and loses nothing. A host that was added reaches itself at once.
    public var link: Link {
        get {
            network.requireThread()
            return network.link
        }
        set {
            newValue.validate()
            network.change { $0.link = newValue }
        }
    }

    /// Sets what connects two hosts, in both directions.
    ///
    /// - Precondition: They are different, or both are ``localhost``.
    public func setLink(_ link: Link, between first: Host, and second: Host) {
        link.validate()
        network.require(first, second)
        precondition(
            first !== second || first === localhost, "World.setLink: \(first.name) reaches itself at once.")
        network.change { $0.links[HostPair(first, second)] = link }
    }

    /// Separates two hosts, until ``heal()``: datagrams and attempts to connect are lost, and the bytes of connections wait.
    public func partition(_ first: Host, _ second: Host) {
        network.require(first, second)
        network.change {
            $0.note("partition between \(first.name) and \(second.name)")
            $0.partitions.insert(HostPair(first, second))
        }
    }

    /// Ends all partitions.
    public func heal() {
        network.change {
            $0.note("partitions end")
            $0.partitions = []
        }
    }

    /// The probabilities of faults. By default nothing goes wrong.
    public var faults: Faults {
        get {
            network.requireThread()
            return network.faults
        }
        set {
            newValue.validate()
            network.change { $0.faults = newValue }
        }
    }

    /// The events of the world so far, with their times since the beginning. The same for the same seed.
    public var trace: [String] {
        network.requireThread()
        return network.trace
    }

    // MARK: What belongs to it

    /// A link between two hosts.
    public struct Link: Sendable, Hashable {
        /// The delay of each piece of data in one direction, chosen at random from this range. The bytes of a connection keep
        /// their order, datagrams may not.
        public var latency: ClosedRange<Duration> = .zero ... .zero
        /// The probability that a datagram is lost, or the first packet of an attempt to connect. It is sent again after one
        /// second, two more, four more and so on, six times; then the attempt fails with `Errno.timedOut`, as Linux's does by
        /// default (`tcp_syn_retries`, tcp(7)).
        public var loss = 0.0
        /// The probability that a datagram arrives twice.
        public var duplication = 0.0
        /// The sizes of the chunks in which bytes arrive, chosen at random; nil for those in which they were written, unless
        /// the receiver is late.
        public var chunkSizes: ClosedRange<Int>?

        /// Creates a link without latency or loss.
        public init() {}

        fileprivate func validate() {
            requireProbabilities("World.Link", loss, duplication)
            precondition(latency.lowerBound >= .zero, "A World.Link cannot have a negative latency.")
            precondition(
                chunkSizes.map { $0.lowerBound > 0 } ?? true, "World.Link.chunkSizes must be positive.")
        }
    }

    /// The probabilities of faults. Each fault that happens has a name; see `simulate(seeds:)`.
    public struct Faults: Sendable, Hashable {
        /// That an attempt to connect is refused.
        public var refusals = 0.0
        /// That a connection is reset, for each piece of data that arrives.
        public var resets = 0.0
        /// That the process has too many open files (`Errno.tooManyOpenFiles`), for each connection that is accepted,
        /// and each attempt to connect.
        public var tooManyFiles = 0.0
        /// That a lookup fails for now (`EAI_AGAIN`).
        public var failedLookups = 0.0
        /// That a lookup takes five seconds more, as if the first name server were silent.
        public var slowLookups = 0.0
        /// That the wall clock is set, by up to an hour, for each piece of data that arrives.
        public var clockJumps = 0.0

        /// Creates probabilities of zero.
        public init() {}

        /// Creates the same probability for all faults.
        public init(all probability: Double) {
            (refusals, resets, tooManyFiles) = (probability, probability, probability)
            (failedLookups, slowLookups, clockJumps) = (probability, probability, probability)
        }

        fileprivate func validate() {
            requireProbabilities(
                "World.Faults", refusals, resets, tooManyFiles, failedLookups, slowLookups, clockJumps)
        }
    }
}

private func requireProbabilities(_ name: String, _ values: Double...) {
    precondition(
        values.allSatisfy { (0...1).contains($0) },
        "The probabilities of \(name) must be from zero to one, and are \(values).")
}

/// A host of a simulated network; see ``World``.
public final class Host: Sendable {
    /// The host that the calling code belongs to; nil for ``World/localhost``.
    @TaskLocal static var current: Host?

    /// Its name.
    public let name: String
    /// Its addresses, with the port 0, apart from those of the loopback interface.
    public let addresses: [SocketAddress]
    /// Its place in the world.
    let number: Int

    init(_ name: String, _ addresses: [SocketAddress], _ number: Int) {
        (self.name, self.addresses, self.number) = (name, addresses, number)
    }

    /// Calls `body` as code of this host: sockets that it and its tasks open belong to the host. Those that a timer or a block
    /// opens, which it leaves to the loop, do not: call this again there.
    public func run<Result>(_ body: () throws -> Result) rethrows -> Result {
        try Host.$current.withValue(self) { try body() }
    }

    /// Calls `body` as code of this host, as the variant for synchronous code does.
    nonisolated(nonsending) public func run<Result>(
        _ body: nonisolated(nonsending) () async throws -> Result
    ) async rethrows -> Result {
        try await Host.$current.withValue(self) { try await body() }
    }
}

/// Two hosts in either order.
struct HostPair: Hashable {
    private let low: Int
    private let high: Int

    init(_ first: Host, _ second: Host) {
        (low, high) = (min(first.number, second.number), max(first.number, second.number))
    }
}
