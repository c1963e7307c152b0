import Dispatch
import Glibc
import Reactor
import Synchronization
import SystemPackage
import Testing

/// Keeps all bytes, and performs the test's action before each chunk.
struct Collector: ChunkProcessor {
    var output: [UInt8] = []
    var before: @Sendable (_ taken: Int) throws -> Void = { _ in }
    var atFinish: @Sendable () throws -> Void = {}

    mutating func process(_ chunk: RawSpan) throws {
        try before(output.count)
        chunk.withUnsafeBytes { output.append(contentsOf: $0) }
    }

    mutating func finish() throws { try atFinish() }
}

extension HandoffReport.Ending {
    /// The error that the hand-off has failed with.
    var error: (any Error)? { if case .failed(let error) = self { error } else { nil } }

    /// The case, and the error's description.
    var name: String {
        switch self {
        case .finished: "finished"
        case .stopped: "stopped"
        case .cancelled: "cancelled"
        case .failed(let error): "failed: \((error as? IOError)?.errno ?? error)"
        }
    }
}

/// Bytes that differ from place to place.
func sample(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
}

/// Runs the calling thread's loop until its mode is empty. Returns false if that did not happen.
func runToTheEnd(in mode: RunLoop.Mode = .default) -> Bool {
    RunLoop.current.run(in: mode, until: .now.advanced(by: .seconds(900))) == .finished
}

/// Hands off `stream`, runs the loop to the end, and returns the report, which must have come once.
func collect(
    _ stream: InputStream, _ collector: sending Collector = Collector(),
    on queue: DispatchQueue = DispatchQueue(label: "collector"), limits: HandoffLimits = HandoffLimits(),
    then cancel: (ChunkHandoff<Collector>) -> Void = { _ in }
) -> HandoffReport<[UInt8]>? {
    var reports: [HandoffReport<[UInt8]>] = []
    let handoff = ChunkHandoff(stream, to: collector, on: queue, limits: limits)
    handoff.start { reports.append($0) }
    cancel(handoff)
    return runToTheEnd() && reports.count == 1 ? reports[0] : nil
}

/// Waits until all of `budget` is released: a cancelled hand-off may do that later.
func waitUntilUnused(_ budget: ByteBudget) {
    let end = Deadline.minutesAway
    while budget.inUse > 0, .now < end { sched_yield() }
    #expect(budget.inUse == 0)
}

/// Keeps nothing, and signals when the hand-off has released it.
final class ReleaseSignal: ChunkProcessor {
    private let released: DispatchSemaphore

    init(_ released: DispatchSemaphore) { self.released = released }

    deinit { released.signal() }

    func process(_ chunk: RawSpan) {}

    var output: Void {}
}
