/// Thrown by ``withDeadline(_:tolerance:clock:_:)`` when its operation throws after the deadline.
public struct DeadlineError: Error {
    /// The error that the operation threw.
    public let underlying: any Error
}

extension DeadlineError: CustomStringConvertible {
    /// That the deadline has passed, and the operation's error.
    public var description: String { "the deadline has passed: \(underlying)" }
}

/// Runs `operation`, and cancels it at `deadline`.
///
/// ```swift
/// let reply = try await withDeadline(.now + .seconds(5), clock: loop.clock()) {
///     try await connection.request()
/// }
/// ```
///
/// Without `clock`, the deadline is an instant of `ContinuousClock`, which counts time in suspension, and no loop's timer is
/// involved.
///
/// Returns only when the operation has: one that does not respond to cancellation is waited for, and its
/// result is returned though it is late.
///
/// - Parameters:
///   - deadline: When to cancel, on `clock`.
///   - tolerance: How late the cancellation may be to share a wake-up.
///   - clock: The clock to wait on, such as a loop's ``RunLoop/clock(inModes:file:line:)``.
///   - operation: A child task, with the isolation of the calling code.
/// - Returns: What `operation` returns.
/// - Throws: What `operation` throws; ``DeadlineError`` if it throws after the deadline; what `clock` throws if
///   its sleep fails, and then the operation is cancelled.
nonisolated(nonsending) public func withDeadline<Success: Sendable, C: Clock>(
    _ deadline: C.Instant, tolerance: C.Instant.Duration? = nil, clock: C = .continuous,
    @_inheritActorContext _ operation: @escaping @Sendable () async throws -> Success
) async throws -> Success {
    try await withThrowingTaskGroup { group in
        group.addTask { Step.returned(try await operation()) }
        group.addTask { try await clock.sleepThenStep(until: deadline, tolerance: tolerance) }
        defer { group.cancelAll() }
        while let step = try await group.next() {
            switch step {
            case .returned(let value): return value
            case .interrupted: continue
            case .expired:
                group.cancelAll()
                return try await result(of: &group)
            }
        }
        fatalError("An operation neither returned nor threw.")
    }
}

/// The outcome of a child task of ``withDeadline(_:tolerance:clock:_:)``.
private enum Step<Success: Sendable>: Sendable {
    case returned(Success)
    /// The deadline has passed.
    case expired
    /// The wait for the deadline was cancelled.
    case interrupted
}

extension Clock {
    fileprivate func sleepThenStep<Success>(
        until deadline: Instant, tolerance: Instant.Duration?
    ) async throws -> Step<Success> {
        do { try await sleep(until: deadline, tolerance: tolerance) } catch {
            guard Task.isCancelled else { throw error }
            return .interrupted
        }
        return .expired
    }
}

/// The result of the operation, whose deadline has passed.
nonisolated(nonsending) private func result<Success>(
    of group: inout ThrowingTaskGroup<Step<Success>, any Error>
) async throws -> Success {
    do {
        guard case .returned(let value) = try await group.next() else {
            fatalError("An operation neither returned nor threw.")
        }
        return value
    } catch {
        throw DeadlineError(underlying: error)
    }
}
