public import Foundation
public import Reactor

/// An operation that works on a run loop's thread, through the callbacks of streams, timers and other
/// sources.
///
/// Subclass it, or pass a closure to ``init(runLoop:inModes:work:)``. A subclass opens and schedules its
/// streams and timers in ``operationDidStart()``; later, a delegate method or a timer's block calls
/// ``finish(with:)``:
///
/// ```swift
/// final class Pause: RunLoopOperation, @unchecked Sendable {  // used only on the loop's thread
///     private var timer: Timer?
///
///     override func operationDidStart() {
///         timer = .scheduledTimer(withTimeInterval: 1, repeats: false) { [weak self] _ in self?.finish() }
///     }
///     override func operationWillFinish() { timer?.invalidate() }
/// }
/// ```
///
/// The three methods to override are called on the loop's thread, in ``runLoopModes``, so state that only
/// they and their callbacks use needs no lock. ``operationDidStart()`` and ``operationDidCancel()`` are
/// called one after the other, even if one of them runs the loop. ``operationWillFinish()`` is called when the
/// operation finishes, which may be inside either of them: ``finish(with:)``, called there or by a callback
/// while they run the loop, finishes the operation before it returns. Because Foundation
/// declares `Operation` as `@unchecked Sendable`, a subclass must declare it too, and the compiler does not
/// check its state. With ``init(runLoop:inModes:work:)`` the state lives in an object that the compiler does
/// check.
///
/// The operation is executing from its start, by an `OperationQueue` or by a call of ``start()``, until it
/// finishes. Dependencies, `maxConcurrentOperationCount`, `waitUntilFinished()` and `completionBlock` work as
/// for every `Operation`. While it executes, the operation retains itself and keeps its loop's modes from
/// being empty. Any number of operations can share a loop's thread.
///
/// All other methods may be called from any thread. The `completionBlock` is released after it has run, as on
/// Apple's systems; Foundation on Linux keeps it.
open class RunLoopOperation: Operation, ProgressReporting, @unchecked Sendable {
    /// The loop's modes in which the operation works.
    public let runLoopModes: [RunLoop.Mode]

    /// The operation's progress. Cancelling the progress cancels the operation, and vice versa.
    ///
    /// It has one unit, unless the operation sets `totalUnitCount`; success completes it. On Linux `Progress`
    /// is not thread-safe: set its counts only on the loop's thread.
    public let progress: Progress

    // `@unchecked Sendable` is correct: mutable state is in the mutexes, except `workObject`. That is used
    // only while a step is performed or the operation completes: on the loop's thread, or, when the operation
    // never began or its loop has ended, by the one call for which `OperationState.beginCompleting()` returns
    // a value.

    private let requestedLoop: RunLoop?
    private let state = Mutex(OperationState())
    /// Wakes the loop for the operation and reports the end of the loop. In the loop while the operation
    /// executes.
    private let source = Mutex<RunLoop.Source?>(nil)
    private let makeWorkObject = Mutex<(@Sendable (RunLoopOperation) -> AnyObject)?>(nil)
    private var workObject: AnyObject?
    /// The operations that depend on this one; nil once it has finished. Foundation keeps unowned pointers to them.
    fileprivate let dependents = Mutex<[Operation]?>([])

    // MARK: Initializers

    /// Creates an operation whose work is done by a subclass.
    ///
    /// - Parameters:
    ///   - runLoop: The loop to work on; the caller makes sure that it runs. Nil for the loop of a thread
    ///     that all such operations share. That thread starts with the first operation and runs until the
    ///     program exits.
    ///   - modes: The loop's modes to work in.
    /// - Precondition: `modes` is not empty.
    public init(runLoop: RunLoop? = nil, inModes modes: [RunLoop.Mode] = [.common]) {
        require(!modes.isEmpty, "A RunLoopOperation must have at least one run loop mode.")
        requestedLoop = runLoop
        runLoopModes = modes
        progress = .discreteProgress(totalUnitCount: 1)
        super.init()
        progress.isCancellable = true
        progress.cancellationHandler = { [weak self] in self?.cancel() }
    }

    /// Creates an operation whose work is done by an object that lives on the loop's thread.
    ///
    /// ```swift
    /// let operation = RunLoopOperation { operation in Download(from: address, reportingTo: operation) }
    /// ```
    ///
    /// The object need not be `Sendable`: it is created, used and released on the loop's thread. It may
    /// retain the operation, which releases the object when it finishes. The object's `deinit` ends any
    /// remaining work, also when the operation is cancelled.
    /// - Parameters:
    ///   - runLoop: The loop to work on; nil for the shared thread's loop.
    ///   - modes: The loop's modes to work in.
    ///   - work: Creates the object. Called once, on the loop's thread, in place of ``operationDidStart()``;
    ///     not called if the operation is cancelled first. The operation retains the object until it
    ///     finishes.
    /// - Precondition: `modes` is not empty.
    public convenience init(
        runLoop: RunLoop? = nil, inModes modes: [RunLoop.Mode] = [.common],
        work: @escaping @Sendable (RunLoopOperation) -> AnyObject
    ) {
        self.init(runLoop: runLoop, inModes: modes)
        makeWorkObject.withLock { $0 = work }
    }

    // MARK: Methods to override

    /// Begins the work. Called once, on the loop's thread, unless the operation is cancelled first.
    ///
    /// An override may finish the operation before it returns.
    open func operationDidStart() {
        guard let makeWorkObject = makeWorkObject.withLock({ $0.take() }) else { return }
        let object = makeWorkObject(self)
        if state.withLock({ $0.isWorking }) { workObject = object }
    }

    /// Ends the work of a cancelled operation. Called at most once, on the loop's thread, after
    /// ``operationDidStart()`` has returned; not called if the operation has already finished.
    ///
    /// The default implementation finishes with a `CancellationError`. An override must make sure that the
    /// operation finishes.
    open func operationDidCancel() { finish(with: .failure(CancellationError())) }

    /// Releases the work's resources: an override closes streams and invalidates timers. Called once, on the
    /// loop's thread, if ``operationDidStart()`` has been called, just before the operation finishes. If
    /// ``finish(with:)`` was called inside another of these methods, so is this one.
    open func operationWillFinish() {}

    // MARK: Finishing

    /// Finishes the operation with `result`. Calls after the first have no effect.
    ///
    /// Called on the loop's thread, the method returns after the operation has finished. Called on another
    /// thread, it returns at once, and the operation finishes on the loop's thread the next time the loop
    /// runs in one of ``runLoopModes``. Called before the operation is started, it makes ``start()`` finish
    /// it.
    /// - Parameter result: The operation's result.
    public final func finish(with result: Result<Void, any Error> = .success(())) {
        guard state.withLock({ $0.setResult(result) }) else { return }
        let isOnLoopThread = state.withLock { $0.loop }?.isCurrent ?? false
        if isOnLoopThread { performSteps() } else { signalLoop() }
    }

    /// The operation's result; nil until it finishes.
    ///
    /// A cancelled operation fails with a `CancellationError`, unless ``operationDidCancel()`` is overridden.
    /// An operation fails with ``RunLoopEndedError`` if the loop's thread has ended, and with an `Errno` if the
    /// shared thread could not be started.
    public final var result: Result<Void, any Error>? { state.withLock { $0.publishedResult } }

    // MARK: Operation

    /// Always true: the work continues after `start()` has returned.
    public final override var isAsynchronous: Bool { true }

    /// Whether the operation has been started and has not finished.
    public final override var isExecuting: Bool { state.withLock { $0.isExecuting } }

    /// Whether the operation has finished.
    public final override var isFinished: Bool { state.withLock { $0.isFinished } }

    /// Schedules the work on the loop. A cancelled operation finishes at once, and none of the methods to
    /// override is called.
    ///
    /// Does nothing if the operation has finished.
    /// - Precondition: The operation is ready and has not been started.
    public final override func start() {
        guard !isFinished else { return }
        require(
            isReady, "RunLoopOperation.start() was called before the operation's dependencies had finished.")
        willChangeValue(forKey: "isExecuting")
        let isFirstStart = state.withLock { $0.start() }
        require(isFirstStart, "RunLoopOperation.start() was called twice.")
        didChangeValue(forKey: "isExecuting")
        if isCancelled { state.withLock { _ = $0.setResult(.failure(CancellationError())) } }
        if state.withLock({ $0.hasResult }) { return complete() }
        do { try schedule(on: requestedLoop ?? ResidentThread.operations.runLoop()) } catch {
            state.withLock { _ = $0.setResult(.failure(error)) }
            complete()
        }
    }

    /// Never called: ``start()`` schedules ``operationDidStart()`` instead.
    public final override func main() {}

    /// Cancels the operation. If its work has not begun, the operation finishes without beginning it;
    /// otherwise ``operationDidCancel()`` is called on the loop's thread. Does nothing if the operation has
    /// finished.
    open override func cancel() {
        super.cancel()
        guard isCancelled, state.withLock({ $0.cancel() }) else { return }
        if !progress.isCancelled { progress.cancel() }
        signalLoop()
    }
}

/// The error of an operation whose run loop's thread has ended.
public struct RunLoopEndedError: Error, Hashable {}

// MARK: - On the loop

extension RunLoopOperation {
    /// Adds the operation's source to `loop`, which then begins the work.
    private func schedule(on loop: RunLoop) throws {
        let source = RunLoop.Source(
            cancelled: { [self] loop, _ in if loop.isCurrent { loopEnded() } },
            perform: { [self] in performSteps() }
        )
        self.source.withLock { $0 = source }
        state.withLock { $0.loop = loop }
        for mode in runLoopModes { loop.add(source, forMode: mode) }
        guard runLoopModes.contains(where: { loop.contains(source, forMode: $0) }) || isFinished else {
            throw RunLoopEndedError()
        }
        signalLoop()
    }

    /// Signals the source, so that the loop calls ``performSteps()``.
    private func signalLoop() {
        guard let source = source.withLock({ $0 }) else { return }
        source.signal()
        state.withLock { $0.loop }?.wakeUp()
    }

    /// Performs all pending steps. Called on the loop's thread.
    private func performSteps() {
        while let step = state.withLock({ $0.nextStep() }) {
            switch step {
            case .start: operationDidStart()
            case .cancel: operationDidCancel()
            case .finish: return complete()
            }
            state.withLock { $0.stepEnded() }
        }
    }

    /// Fails the operation if its loop's thread ends. Also called, without effect, after ``complete()`` has
    /// invalidated the source.
    private func loopEnded() {
        guard !isFinished else { return }
        state.withLock { _ = $0.setResult(.failure(RunLoopEndedError())) }
        if state.withLock({ $0.nextStep() }) == .finish { complete() }
    }

    /// Finishes the operation, which has a result. Calls after the first have no effect.
    private func complete() {
        guard let hadBegun = state.withLock({ $0.beginCompleting() }) else { return }
        if hadBegun { operationWillFinish() }
        workObject = nil
        _ = makeWorkObject.withLock { $0.take() }
        let source = source.withLock { $0.take() }
        if case .success = state.withLock({ $0.result }) {
            progress.completedUnitCount = progress.totalUnitCount
        }
        // The dependencies of a cancelled operation may not have finished, and must not use a released operation.
        if isCancelled { for dependency in dependencies { removeDependency(dependency) } }
        willChangeValue(forKey: "isExecuting")
        willChangeValue(forKey: "isFinished")
        state.withLock { $0.complete() }
        didChangeValue(forKey: "isExecuting")
        didChangeValue(forKey: "isFinished")
        completionBlock = nil
        let dependents = dependents.withLock { $0.take() }
        withExtendedLifetime(dependents) {}
        source?.invalidate()
    }
}

// MARK: - Dependencies

extension Operation {
    /// Adds a dependency: this operation waits until `operation` has finished, which retains this operation until then.
    ///
    /// Foundation on Linux does not retain it, and crashes if it is released first: a cancelled operation finishes without
    /// waiting for its dependencies. See <doc:Operations#Dependencies>.
    public func addDependency(_ operation: RunLoopOperation) {
        operation.dependents.withLock { $0?.append(self) }
        addDependency(operation as Operation)
    }

    /// Removes a dependency: this operation no longer waits for `operation`, which no longer retains it.
    public func removeDependency(_ operation: RunLoopOperation) {
        removeDependency(operation as Operation)
        operation.dependents.withLock { $0?.removeAll { $0 === self } }
    }
}

extension ResidentThread {
    /// The thread of operations that are created without a loop.
    fileprivate static let operations = ResidentThread(name: "reactor.ops")
}
