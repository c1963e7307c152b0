import Reactor
public import Testing

/// Calls `body` in a simulation: with virtual time, and a network of its own; see ``World``.
///
/// - Parameters:
///   - seed: Determines the latencies and faults of the network, and the order of what is ready at once; see
///     ``seeds(_:)``. With REACTOR_SEED=17:reset-connection-4-0 in the environment a simulation with the seed 17 has that
///     fault only; see `simulate(seeds:)`.
///   - body: The test.
/// - Precondition: Not called inside `withVirtualTime` or `withSimulation`, nor in a task that was made inside, nor on the main
///   actor while another test has virtual time there.
@available(*, noasync, message: "await withSimulation, in a suite with the trait runLoop")
public func withSimulation<Result>(
    seed: UInt64 = 0, _ body: (World) throws -> Result
) rethrows -> Result {
    try SimulationRun(seed).call(body)
}

/// Calls `body` in a simulation; see ``World``.
///
/// The task has to stay on one thread whose loop runs while the task is suspended, as for `withVirtualTime`.
///
/// - Parameters:
///   - seed: As in the variant for synchronous tests.
///   - body: The test.
/// - Precondition: Not called inside `withVirtualTime` or `withSimulation`, nor in a task that was made inside. The task is on
///   the same thread at the end.
nonisolated(nonsending) public func withSimulation<Result>(
    seed: UInt64 = 0, _ body: nonisolated(nonsending) (World) async throws -> Result
) async rethrows -> Result {
    try await SimulationRun(seed).callAsync(body)
}

/// Calls `body` in a simulation for each of some seeds, until it fails: records an issue, or throws.
///
/// The time limit of the test is for all seeds and for the search after a failure, which makes up to 100 runs.
///
/// Each fault of a simulation has a name, such as `reset-connection-4-0` for the first reset of the
/// fourth connection. When a seed fails, this looks for a small set of faults with which it still fails, calls `body` with
/// those once more, and records an issue with the environment variable that repeats just that, such as
/// `REACTOR_SEED=17:reset-connection-4-0`. The issues of the other runs are recorded as known ones.
///
/// ```swift
/// @Test func `no message is lost while connections are reset`() {
///     simulate(seeds: 1000) { world in
///         world.faults.resets = 0.01
///         …
///     }
/// }
/// ```
///
/// - Parameters:
///   - count: How many seeds to try; see ``seeds(_:)``.
///   - sourceLocation: Where an issue is recorded.
///   - body: The test. It is called many times, so it makes all that it uses.
@available(*, noasync, message: "await simulate, in a suite with the trait runLoop")
public func simulate(
    seeds count: Int, sourceLocation: SourceLocation = #_sourceLocation, _ body: (World) throws -> Void
) {
    for seed in seeds(count) {
        var search = FailureSearch(seed)
        while let run = search.next() { search.record(run, hasFailed: run.fails(sourceLocation, body)) }
        if TestScope.isOverdue { return }
        guard let failure = search.failure else { continue }
        failure.report(sourceLocation)
        do { try failure.call(body) } catch { Issue.record(error, sourceLocation: sourceLocation) }
        return
    }
}

/// Calls `body` in a simulation for each of some seeds, as the variant for synchronous tests does.
nonisolated(nonsending) public func simulate(
    seeds count: Int, sourceLocation: SourceLocation = #_sourceLocation,
    _ body: nonisolated(nonsending) (World) async throws -> Void
) async {
    for seed in seeds(count) {
        var search = FailureSearch(seed)
        while let run = search.next() {
            search.record(run, hasFailed: await run.failsAsync(sourceLocation, body))
        }
        if TestScope.isOverdue { return }
        guard let failure = search.failure else { continue }
        failure.report(sourceLocation)
        do { try await failure.callAsync(body) } catch { Issue.record(error, sourceLocation: sourceLocation) }
        return
    }
}

/// One run of a simulation.
final class SimulationRun {
    let seed: UInt64
    /// The faults that may happen; nil for all.
    let kept: [Fault]?
    /// Those that have happened, once it is over.
    private(set) var happened: [Fault] = []

    init(_ seed: UInt64, kept: [Fault]? = nil) {
        self.seed = seed
        self.kept = kept ?? SeedChoice.inEnvironment.flatMap { $0.seed == seed ? $0.faults : nil }
    }

    func call<Result>(_ body: (World) throws -> Result) rethrows -> Result {
        let domain = TimeDomain.enter(seed: seed, servesTask: false, simulation: self)
        defer { leave(domain) }
        return try TimeDomain.$ofTask.withValue(domain) {
            try body(World(domain.simulation!, VirtualTime(domain)))
        }
    }

    nonisolated(nonsending) func callAsync<Result>(
        _ body: nonisolated(nonsending) (World) async throws -> Result
    ) async rethrows -> Result {
        let domain = await TimeDomain.enterFromTask("withSimulation", seed: seed, simulation: self)
        defer { leave(domain) }
        return try await TimeDomain.$ofTask.withValue(domain) {
            try await body(World(domain.simulation!, VirtualTime(domain)))
        }
    }

    /// Calls `body`, whose issues are recorded as known ones. Returns whether there was any.
    func fails(_ sourceLocation: SourceLocation, _ body: (World) throws -> Void) -> Bool {
        let hasFailed = Mutex(false)
        try? withKnownIssue(isIntermittent: true, sourceLocation: sourceLocation) {
            try call(body)
        } matching: { _ in
            hasFailed.withLock { $0 = true }
            return true
        }
        return hasFailed.withLock { $0 }
    }

    nonisolated(nonsending) func failsAsync(
        _ sourceLocation: SourceLocation, _ body: nonisolated(nonsending) (World) async throws -> Void
    ) async -> Bool {
        let hasFailed = Mutex(false)
        try? await withKnownIssue(isIntermittent: true, sourceLocation: sourceLocation) {
            try await callAsync(body)
        } matching: { _ in
            hasFailed.withLock { $0 = true }
            return true
        }
        return hasFailed.withLock { $0 }
    }

    /// Ends the simulation, after serving what its connections have left to the loop: that would draw from the order of the
    /// next one otherwise.
    private func leave(_ domain: TimeDomain) {
        domain.requireOnThread()
        let network = domain.simulation!
        happened = network.plan.happened
        network.faults = World.Faults()
        let time = VirtualTime(domain)
        time.serveWhatIsReady(inMode: .default)
        network.endConnections()
        time.serveWhatIsReady(inMode: .default)
        domain.leave()
    }

    func report(_ sourceLocation: SourceLocation) {
        let list = kept.map { ":" + $0.map(\.description).joined(separator: ",") } ?? ""
        Issue.record(
            "A simulation fails. Set REACTOR_SEED=\(seed)\(list) in the environment to repeat it.",
            sourceLocation: sourceLocation)
    }
}

/// Looks for a small set of faults with which a seed fails.
struct FailureSearch {
    /// Enough for a set of some twenty faults. Each is a run of the test.
    private static let maximumRunCount = 100

    private let seed: UInt64
    private(set) var failure: SimulationRun?
    /// The faults of the failure.
    private var faults: [Fault] = []
    /// How many faults the next run leaves out, and from which place on. At first all.
    private var (length, start) = (0, 0)
    private var runCount = 0

    init(_ seed: UInt64) { self.seed = seed }

    /// The next run; nil once there is no more.
    func next() -> SimulationRun? {
        // Once the test's time is over, a run ends early, which is no failure of its seed.
        if TestScope.isOverdue { return nil }
        guard failure != nil else { return runCount == 0 ? SimulationRun(seed) : nil }
        guard length > 0, runCount < Self.maximumRunCount else { return nil }
        var rest = faults
        rest.removeSubrange(start..<min(start + length, rest.count))
        return SimulationRun(seed, kept: rest)
    }

    mutating func record(_ run: SimulationRun, hasFailed: Bool) {
        runCount += 1
        if hasFailed {
            let isFirst = failure == nil
            failure = run
            // Some of those that it may have had may not have happened.
            faults = run.happened
            length = isFirst ? faults.count : min(length, faults.count)
        } else {
            start += length
        }
        guard start >= faults.count, length > 0 else { return }
        (start, length) = (0, length / 2)
    }
}
