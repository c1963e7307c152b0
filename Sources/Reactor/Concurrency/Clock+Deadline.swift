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
        let hasPassed = Flag()
        do {
            return try await withTaskCancelled(
                when: {
                    do { try await sleep(until: deadline, tolerance: tolerance) } catch {
                        if Task.isCancelled { return }
                        throw error
                    }
                    hasPassed.raise()
                }, operation)
        } catch {
            throw hasPassed.isRaised ? DeadlineError(underlyingError: error) : error
        }
    }
}
