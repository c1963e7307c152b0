public import Dispatch
import SystemPackage

extension InputStream {
    /// Passes the stream's bytes to a processor on a Dispatch queue, and waits for the result.
    ///
    /// ```swift
    /// let input = InputStream(path: "/var/log/syslog")
    /// let report = try await input.handOff(to: Checksum(), on: DispatchQueue(label: "checksum"))
    /// print(report.output, "after", report.byteCount, "bytes")
    /// ```
    ///
    /// The asynchronous form of ``ChunkHandoff``: the hand-off opens the stream, owns it, and closes it at the end. The loop
    /// that the stream is scheduled on serves it in the stream's modes; that of the task serves a stream on no loop, as for
    /// ``chunks``, and it delivers the end, too: while no such mode runs, nothing ends. Cancelling the task ends the hand-off
    /// after the processor's current call. For the output of a hand-off that has failed, use ``ChunkHandoff``.
    ///
    /// - Parameters:
    ///   - processor: Belongs to the queue from now on.
    ///   - queue: The queue that calls the processor.
    ///   - limits: The maximum number of bytes in flight.
    /// - Returns: The report, whose ending is ``HandoffEnding/finished`` or ``HandoffEnding/stopped``.
    /// - Throws: The error of the stream or of the processor; `CancellationError`; ``IOError`` with `Errno.canceled` if the
    ///   loop's thread ends before the hand-off, or has ended; with an error of pthread_create(3) if the library's own thread,
    ///   which serves a task elsewhere, cannot be created.
    /// - Precondition: No task reads the stream.
    nonisolated(nonsending) public func handOff<Processor: ChunkProcessor>(
        to processor: sending Processor, on queue: DispatchQueue, limits: HandoffLimits = HandoffLimits()
    ) async throws -> HandoffReport<Processor.Output> {
        let scheduled = engine.scheduledPlace
        let parker: TaskParker
        do throws(Errno) {
            let place = try RunLoop.place(of: #isolation, orOn: scheduled?.loop)
            parker = TaskParker(on: place.loop, place.executor)
        } catch {
            throw engine.failure(error)
        }
        let (loop, modes) = scheduled ?? (parker.loop, parker.executor.modes)
        let result = HandoffResult<Processor.Output>(at: parker, isCancelled: Task.isCancelled)
        let stream = LoopOwned(self, on: loop)
        let transferred = Transferred(processor)
        let executor = loop.executor()
        guard executor.beginWaiting(at: parker) else { throw engine.failure(.canceled) }
        defer { executor.endWaiting(at: parker) }
        loop.runOnLoopThread { _ in
            guard let processor = transferred.take() else { return }
            let handoff = ChunkHandoff(stream.value, to: processor, on: queue, limits: limits)
            // Before the start, so that the hand-off of a cancelled task processes nothing.
            result.set(handoff)
            handoff.start(inModes: Array(modes.members)) { result.set($0) }
        }
        guard let report = await result.wait(for: loop, isolation: #isolation) else {
            throw engine.failure(.canceled)
        }
        if case .failed(let error) = report.ending { throw error }
        if case .cancelled = report.ending { throw CancellationError() }
        return report
    }
}

/// What a task waits for that has handed a stream off.
private final class HandoffResult<Output: Sendable>: Sendable {
    private struct State {
        var handoff: ChunkHandoff<Output>?
        var report: HandoffReport<Output>?
        var isCancelled: Bool
    }

    private let parker: TaskParker
    private let state: Mutex<State>

    init(at parker: TaskParker, isCancelled: Bool) {
        self.parker = parker
        state = Mutex(State(isCancelled: isCancelled))
    }

    /// Called on the loop's thread, before the hand-off starts.
    func set(_ handoff: ChunkHandoff<Output>) {
        let isCancelled = state.withLock { state in
            state.handoff = handoff
            return state.isCancelled
        }
        if isCancelled { handoff.cancel() }
    }

    /// Called on the loop's thread, as the hand-off's completion.
    func set(_ report: HandoffReport<Output>) {
        state.withLock { $0.report = report }
        parker.unpark()
    }

    private func cancel() {
        let handoff = state.withLock { state in
            state.isCancelled = true
            return state.handoff
        }
        handoff?.cancel()
    }

    /// The report; nil if `loop` has ended without one.
    func wait(
        for loop: RunLoop, isolation: isolated (any Actor)?
    ) async -> HandoffReport<Output>? {
        while true {
            if let report = state.withLock({ $0.report }) { return report }
            if loop.inbox.isClosed { return nil }
            if Task.isCancelled {
                cancel()
                await parker.parkIgnoringCancellation(isolation: isolation)
            } else {
                await parker.park(isolation: isolation)
            }
        }
    }
}
