import Glibc
import Reactor
import ReactorTestSupport
import SystemPackage
import Testing

/// The kinds of sequence whose events a loop serves.
enum EventKind: String, CaseIterable, Codable, Sendable {
    case ticks, signals, readiness, files, clock, connections, datagrams

    /// Those that end when the task that iterates over them is cancelled.
    static let ofSources = [EventKind.ticks, .signals, .readiness, .files, .clock]
    /// Those whose socket stays open when such a task is cancelled.
    static let ofSockets = [EventKind.connections, .datagrams]
    /// Those whose events a test can make.
    static let withEvents = allCases.filter { $0 != .signals }
}

/// A sequence of some kind, with what makes its events.
struct EventFixture: Sendable {
    /// Begins an iteration, and returns whether it has an event; otherwise it has ended.
    let next: nonisolated(nonsending) @Sendable () async throws -> Bool
    /// Makes an event, unless they come by themselves.
    private(set) var cause: @Sendable () throws -> Void = {}
    private(set) var connections: Listener.Connections?
    private(set) var datagrams: DatagramSocket.Datagrams?

    /// - Parameter isIdle: Whether no event comes by itself.
    init(
        _ kind: EventKind, on loop: RunLoop, inModes modes: [RunLoop.Mode] = [.common], isIdle: Bool = false,
        options: DatagramSocket.Options = .init()
    ) throws {
        switch kind {
        case .ticks:
            let ticks = loop.ticks(every: isIdle ? .seconds(3600) : .microseconds(200), inModes: modes)
            next = { await ticks.makeAsyncIterator().next() != nil }
        case .signals:
            let signals = try loop.signals([.windowSizeChange], inModes: modes)
            next = { try await signals.makeAsyncIterator().next() != nil }
        case .readiness:
            let pipe = try WatchedPipe(on: loop, inModes: modes)
            next = {
                let iterator = try #require(pipe.readiness.value).makeAsyncIterator()
                guard try await iterator.next() == .readable else { return false }
                pipe.pipe.get()
                return true
            }
            cause = { pipe.pipe.put() }
        case .files:
            let folder = TemporaryFolder()
            let file = folder.fifo()
            let events = try loop.fileEvents(at: [folder.path], inModes: modes)
            next = {
                defer { withExtendedLifetime(folder) {} }
                return try await events.makeAsyncIterator().next() != nil
            }
            cause = { chmod(file.string, 0o600) }
        case .clock:
            let date = ClockTimer.Clock.bootTime.now + (isIdle ? .seconds(3600) : .zero)
            let firings = try loop.firings(of: .bootTime, at: date, every: .milliseconds(1), inModes: modes)
            next = { try await firings.makeAsyncIterator().next() != nil }
        case .connections:
            let connections = try loop.connections(at: .ownLoopback, inModes: modes) { _ in }
            next = { try await connections.makeAsyncIterator().next() != nil }
            cause = { _ = try SocketPeer(connectedTo: connections.localAddress) }
            self.connections = connections
        case .datagrams:
            let datagrams = try loop.datagrams(boundTo: .ownLoopback, options: options, inModes: modes)
            let address = datagrams.localAddress
            next = { try await datagrams.makeAsyncIterator().next() != nil }
            cause = {
                let client = try SocketPeer(family: AF_INET, SOCK_DGRAM)
                try client.connect(to: address)
                client.send([1])
            }
            self.datagrams = datagrams
        }
    }
}

/// A pipe that stays open until the loop has ended the source that watches it.
private final class WatchedPipe: Sendable {
    let pipe = try! TestPipe()
    let readiness: Shared<RunLoop.Events<Readiness, any Error>?>
    private let loop: RunLoop

    init(on loop: RunLoop, inModes modes: [RunLoop.Mode]) throws {
        self.loop = loop
        readiness = Shared(loop.readiness(of: pipe.readEnd, for: .readable, inModes: modes))
    }

    deinit {
        readiness.value = nil
        loop.perform { [pipe] in withExtendedLifetime(pipe) {} }
    }
}
