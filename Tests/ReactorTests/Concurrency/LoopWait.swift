import Dispatch
import Reactor
import SystemPackage

/// What a task of a loop waits for, and how the wait ends with the loop.
enum LoopWait: CaseIterable, Sendable {
    case stream, lines, connection, datagram, datagrams, readiness, ticks, clock, handoff

    /// Waits on `loop`, where nothing comes.
    nonisolated(nonsending) func result(on loop: RunLoop, _ feed: Feed) async throws -> String {
        let input = feed.makeStream()
        switch self {
        case .stream:
            while try await input.readChunk() != nil {}
        case .lines:
            for try await _ in input.lines {}
        case .connection:
            for try await _ in try loop.connections(at: .ipv4Loopback(port: 0), faults: { _ in }) {}
        case .datagram:
            _ = try await loop.datagrams(boundTo: .ipv4Loopback(port: 0)).receive()
        case .datagrams:
            for try await _ in try loop.datagrams(boundTo: .ipv4Loopback(port: 0)) {}
        case .readiness:
            let idle = try Feed()
            for try await _ in loop.readiness(of: idle.readEnd, for: .readable) {}
        case .ticks:
            for await _ in loop.ticks(every: .seconds(3600)) {}
        case .clock:
            try await loop.clock().sleep(for: .seconds(3600))
        case .handoff:
            _ = try await input.handOff(to: Ignorer(), on: DispatchQueue(label: "ignored"))
        }
        return "ended"
    }

    /// `Reactor.docc/Concurrency.md` has a table of these.
    var expectedEnd: String {
        switch self {
        case .stream, .lines, .clock: "CancellationError"
        case .connection, .datagrams, .readiness, .ticks: "ended"
        case .datagram: "\(Errno.badFileDescriptor)"
        case .handoff: "\(Errno.canceled)"
        }
    }

    /// Waits until the task waits: its loop has nothing else to do.
    func untilUnderWay(on thread: RunLoopThread) {
        for _ in 0..<10 { thread.runLoop.performAndWait {} }
        thread.untilAsleep()
    }
}

private struct Ignorer: ChunkProcessor {
    let output = 0

    func process(_ chunk: RawSpan) {}
}
