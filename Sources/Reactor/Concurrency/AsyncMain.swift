import Glibc
import Synchronization
import SystemPackage

extension RunLoop {
    /// Whether the main loop runs on the process's main thread while an asynchronous main function is
    /// suspended: that of an `@main` type, top-level code with `await`, or Swift Testing's. True unless set.
    ///
    /// Then main-actor code runs on the process's main thread, and timers, streams, sources and blocks of
    /// ``RunLoop/main`` are served. Without the loop Swift's runtime leaves that thread to libdispatch:
    /// main-actor code runs on any thread, and nothing serves the main loop.
    ///
    /// A program that has another use for its main thread sets this to false before it awaits anything. It
    /// has no effect later, nor in a program with a synchronous main function, which runs the main loop
    /// itself: with ``RunLoop/run(cancelledBy:_:)``, or one of the other `run` methods.
    ///
    /// XCTest keeps the main thread to itself: in its tests nothing serves the main loop.
    public static var runsInAsyncMain: Bool {
        get { asyncMainRunsLoop.load(ordering: .relaxed) }
        set { asyncMainRunsLoop.store(newValue, ordering: .relaxed) }
    }

    private static let asyncMainRunsLoop = Atomic(true)
}

/// Called by the runtime's hook, on the main thread. The main function ends the process when it returns.
@c(reactor_run_main_loop)
func runMainLoop() {
    guard RunLoop.runsInAsyncMain else { return }
    while true { RunLoop.main.run(in: .default) }
}

extension RunLoop {
    /// Runs the loop in the default mode until `operation` has returned or thrown: for a synchronous main
    /// function, and for any thread of its own.
    ///
    /// ```swift
    /// try RunLoop.main.run(cancelledBy: [.interrupt, .terminate]) {
    ///     try await serve()
    /// }
    /// ```
    ///
    /// The operation is a task that has the isolation of the calling code, and otherwise prefers this loop:
    /// code that is isolated to no actor runs on the loop's thread. ``stop()`` does not end it.
    ///
    /// - Parameters:
    ///   - signals: Signals that cancel the operation's task, in place of what they would do; see
    ///     ``SignalSource``.
    ///   - operation: What to run.
    /// - Returns: What `operation` returns.
    /// - Throws: What `operation` throws.
    /// - Precondition: Called on the loop's own thread. The signals can be caught, and there are descriptors
    ///   for that.
    @available(*, noasync, message: "await the operation itself")
    public func run<Success: Sendable, Failure: Error>(
        cancelledBy signals: [Signal] = [],
        @_inheritActorContext _ operation: @escaping @Sendable () async throws(Failure) -> Success
    ) throws(Failure) -> Success {
        requireCurrent("RunLoop.run(cancelledBy:_:) must be called")
        let outcome = Outcome<Success, Failure>(loop: self)
        let task = Task(executorPreference: executor()) {
            do throws(Failure) { outcome.set(.success(try await operation())) } catch {
                outcome.set(.failure(error))
            }
        }
        let sources = signals.map { cancel(task, by: $0) }
        defer { for source in sources { source.cancel() } }
        return try outcome.run().get()
    }

    private func cancel(_ task: Task<Void, Never>, by signal: Signal) -> SignalSource {
        do {
            let source = try SignalSource(signal) { _, _ in task.cancel() }
            try add(source, forMode: .common)
            return source
        } catch {
            fatalError("RunLoop.run(cancelledBy:_:) cannot catch a signal: \(error).")
        }
    }
}

/// The result that an activation of a loop waits for. Used on the loop's thread.
private final class Outcome<Success: Sendable, Failure: Error>: Sendable {
    private let loop: RunLoop
    /// How many activations are in progress when the one that waits is the innermost.
    private let depth: Int
    private let result = Mutex<Result<Success, Failure>?>(nil)

    init(loop: RunLoop) { (self.loop, depth) = (loop, loop.depth + 1) }

    /// Ends the activation that waits, but none that is nested in it.
    func set(_ result: Result<Success, Failure>) {
        self.result.withLock { $0 = result }
        loop.requestEnd(at: depth)
    }

    /// Runs the loop until there is a result.
    func run() -> Result<Success, Failure> {
        let keepAlive = RunLoop.Source {}
        loop.add(keepAlive, forMode: .default)
        defer {
            keepAlive.invalidate()
            loop.withdrawEnd(at: depth)
        }
        while true {
            if let result = result.withLock({ $0 }) { return result }
            loop.run(in: .default)
        }
    }
}
