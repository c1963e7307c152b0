extension RunLoop.Clock {
    /// Thrown by ``withDeadline(_:tolerance:_:)`` when its operation throws after the deadline.
    public struct DeadlineError: Error, CustomStringConvertible {
        /// The error that the operation threw.
        public let underlyingError: any Error

        /// That the deadline has passed, and the operation's error.
        public var description: String { "the deadline has passed: \(underlyingError)" }
    }

    /// Runs `operation`, and cancels it at `deadline`.
    ///
    /// ```swift
    /// let clock = loop.clock()
    /// let reply = try await clock.withDeadline(.now + .seconds(5)) { try await connection.request() }
    /// ```
    ///
    /// Returns only after `operation` has returned or thrown. An operation that ignores its cancellation runs to its end, and
    /// this returns its late result.
    ///
    /// - Parameters:
    ///   - deadline: When to cancel.
    ///   - tolerance: How late the cancellation may be to share a wake-up.
    ///   - operation: A child task, with the isolation of the calling code.
    /// - Returns: What `operation` returns.
    /// - Throws: What `operation` throws; ``DeadlineError`` if it throws after the deadline; `CancellationError` if the loop's
    ///   thread ends, and then the operation is cancelled.
    nonisolated(nonsending) public func withDeadline<Success: Sendable>(
        _ deadline: Deadline, tolerance: Duration? = nil,
        @_inheritActorContext _ operation: @escaping @Sendable () async throws -> Success
    ) async throws -> Success {
        try await withThrowingTaskGroup { group in
            group.addTask { Step.returned(try await operation()) }
            group.addTask { try await sleepThenStep(until: deadline, tolerance: tolerance) }
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

    private func sleepThenStep<Success>(
        until deadline: Deadline, tolerance: Duration?
    ) async throws -> Step<Success> {
        do { try await sleep(until: deadline, tolerance: tolerance) } catch {
            guard Task.isCancelled else { throw error }
            return .interrupted
        }
        return .expired
    }
}

/// The outcome of a child task of ``RunLoop/Clock/withDeadline(_:tolerance:_:)``.
private enum Step<Success: Sendable>: Sendable {
    case returned(Success)
    /// The deadline has passed.
    case expired
    /// The wait for the deadline was cancelled.
    case interrupted
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
        throw RunLoop.Clock.DeadlineError(underlyingError: error)
    }
}
