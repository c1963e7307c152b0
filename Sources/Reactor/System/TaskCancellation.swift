/// Runs `operation` as a child task with the isolation of the calling code, and cancels it when `watch` returns. Returns only
/// after both have ended.
///
/// - Parameters:
///   - isCancelled: Whether both are cancelled from the beginning.
///   - watch: Another child task; cancelled when `operation` has ended.
/// - Returns: What `operation` returns.
/// - Throws: What `operation` throws, or what `watch` throws before.
nonisolated(nonsending) func withTaskCancelled<Success: Sendable>(
    fromBeginning isCancelled: Bool = false, when watch: @escaping @Sendable () async throws -> Void,
    @_inheritActorContext _ operation: @escaping @Sendable () async throws -> Success
) async throws -> Success {
    try await withThrowingTaskGroup(of: Success?.self) { group in
        if isCancelled { group.cancelAll() }
        group.addTask { try await operation() }
        group.addTask {
            try await watch()
            return nil
        }
        defer { group.cancelAll() }
        while let result = try await group.next() {
            if let result { return result }
            group.cancelAll()
        }
        fatalError("An operation neither returned nor threw.")
    }
}
