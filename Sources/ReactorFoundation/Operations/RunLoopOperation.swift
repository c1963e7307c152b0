public import Foundation
public import Reactor

/// An operation whose work is done on a run loop's thread: by streams, timers, and whatever else calls back there.
///
/// Subclass it as Cocoa code does. ``operationDidStart()`` opens and schedules; a delegate's method or a timer's
/// closure calls ``finish(with:)``, from which on the operation counts as finished:
///
/// ```swift
/// final class Pause: RunLoopOperation, @unchecked Sendable {  // touched on the loop's thread alone
///     private var timer: Timer?
///
///     override func operationDidStart() {
///         timer = .scheduledTimer(withTimeInterval: 1, repeats: false) { [weak self] _ in self?.finish() }
///     }
///     override func operationWillFinish() { timer?.invalidate() }
/// }
/// ```
///
/// The three methods to override are called on the loop's thread, in ``runLoopModes``, one after another and never
/// inside each other: what only they and their callbacks touch needs no lock. Foundation's `Operation` being
/// `@unchecked Sendable`, a subclass has to say so too. Where the compiler is to check instead, give
/// ``init(runLoop:modes:work:)`` a closure that makes an object of one's own.
///
/// Started by hand or by an `OperationQueue`, the operation is executing until it has finished, and holds its place
/// in the queue: dependencies, `maxConcurrentOperationCount`, `waitUntilFinished()` and `completionBlock` are
/// Foundation's. It keeps itself alive meanwhile, and its loop's modes from being empty. As many operations as there
/// is memory for share a loop's thread.
///
/// Other methods may be called from any thread. Where Foundation on Linux differs: its `completionBlock` is kept
/// after it has run; here it is let go of, as on Apple's systems.
open class RunLoopOperation: Operation, ProgressReporting, @unchecked Sendable {
    /// The modes of the loop that the work is done in.
    public let runLoopModes: [RunLoop.Mode]

    /// How far the operation is, for whoever shows it. Cancelling it cancels the operation, and the other way round.
    ///
    /// One unit in all, unless the operation sets `totalUnitCount`; a success completes it. Foundation's `Progress`
    /// has no lock on Linux: the operation sets its counts on the loop's thread.
    public let progress: Progress

    // `@unchecked Sendable` is right: what can change is in the two mutexes, or, as `work`, touched by the hooks
    // alone, which are called on the loop's thread or, when that has ended, by the last who knows of them.

    private let chosenLoop: RunLoop?
    private let life = Mutex(OperationLife())
    /// What wakes the loop for the operation, and tells of the loop's end; in the loop while the operation executes.
    private let source = Mutex<RunLoop.Source?>(nil)
    private let makeWork = Mutex<(@Sendable (RunLoopOperation) -> AnyObject)?>(nil)
    private var work: AnyObject?

    // MARK: Making

    /// Makes an operation of a subclass.
    ///
    /// - Parameters:
    ///   - runLoop: The loop to work on, which somebody runs. Nil for that of a thread that all such operations
    ///     share, which is started with the first of them and runs to the program's end.
    ///   - modes: The modes to work in.
    /// - Precondition: `modes` names at least one.
    public init(runLoop: RunLoop? = nil, modes: [RunLoop.Mode] = [.common]) {
        precondition(!modes.isEmpty, "an operation that works in no mode would never end")
        chosenLoop = runLoop
        runLoopModes = modes
        progress = .discreteProgress(totalUnitCount: 1)
        super.init()
        progress.isCancellable = true
        progress.cancellationHandler = { [weak self] in self?.cancel() }
    }

    /// Makes an operation whose work is that of an object of its own, which lives on the loop's thread.
    ///
    /// ```swift
    /// let operation = RunLoopOperation { operation in Download(from: address, reportingTo: operation) }
    /// ```
    ///
    /// The object need not be `Sendable`: it is made, called and let go of on the loop's thread. It should refer to
    /// the operation weakly or not at all once that has finished; its `deinit` ends what is still under way, also
    /// when the operation is cancelled.
    /// - Parameters:
    ///   - runLoop: The loop to work on; nil for that of the shared thread.
    ///   - modes: The modes to work in.
    ///   - work: Called once, on the loop's thread, in place of ``operationDidStart()``; not at all if the operation
    ///     is cancelled before. What it returns is kept until the operation finishes.
    /// - Precondition: `modes` names at least one.
    public convenience init(
        runLoop: RunLoop? = nil, modes: [RunLoop.Mode] = [.common],
        work: @escaping @Sendable (RunLoopOperation) -> AnyObject
    ) {
        self.init(runLoop: runLoop, modes: modes)
        makeWork.withLock { $0 = work }
    }

    // MARK: To override

    /// Begins the work. Called once, on the loop's thread, unless the operation is cancelled before.
    ///
    /// It may finish the operation at once.
    open func operationDidStart() {
        guard let makeWork = makeWork.withLock({ $0.take() }) else { return }
        let made = makeWork(self)
        if life.withLock({ $0.isWorking }) { work = made }
    }

    /// Learns that the operation has been cancelled. Called once at most, on the loop's thread, after
    /// ``operationDidStart()`` has returned, and not if the operation has finished by then.
    ///
    /// An override has to see to it that the operation finishes. This finishes with a `CancellationError`.
    open func operationDidCancel() { finish(with: .failure(CancellationError())) }

    /// Lets go of what the work has used: closes streams, invalidates timers. Called once, on the loop's thread,
    /// after ``operationDidStart()`` has been called, and before the operation counts as finished.
    open func operationWillFinish() {}

    // MARK: Finishing

    /// Finishes the operation. Only the first call counts.
    ///
    /// From the loop's thread the operation has finished when this returns. From any other it finishes there, in one
    /// of its modes, soon; before it was started, when it is.
    /// - Parameter result: What has come of it; success unless said otherwise.
    public final func finish(with result: Result<Void, any Error> = .success(())) {
        guard life.withLock({ $0.takeResult(result) }) else { return }
        let isHome = life.withLock { $0.loop }?.isCurrent ?? false
        if isHome { serve() } else { callLoop() }
    }

    /// What has come of the operation: nil until it finishes.
    ///
    /// A cancelled operation's is a `CancellationError`, unless ``operationDidCancel()`` decides otherwise. One whose
    /// loop's thread has ended fails with ``RunLoopHasEnded``, one whose thread could not be started with an `Errno`.
    public final var result: Result<Void, any Error>? { life.withLock { $0.publishedResult } }

    // MARK: Operation

    /// True: the work goes on after `start()` has returned.
    public final override var isAsynchronous: Bool { true }

    /// Whether the operation has been started, and has not finished.
    public final override var isExecuting: Bool { life.withLock { $0.isExecuting } }

    /// Whether the operation has finished.
    public final override var isFinished: Bool { life.withLock { $0.isFinished } }

    /// Has the loop begin the work; a cancelled operation finishes at once, without its methods being called.
    ///
    /// Does nothing once the operation has finished.
    /// - Precondition: The operation is ready, and has not been started before.
    public final override func start() {
        guard !isFinished else { return }
        precondition(isReady, "an operation was started before those that it depends on have finished")
        willChangeValue(forKey: "isExecuting")
        let hasBegun = life.withLock { $0.start() }
        precondition(hasBegun, "an operation was started twice")
        didChangeValue(forKey: "isExecuting")
        if isCancelled { life.withLock { _ = $0.takeResult(.failure(CancellationError())) } }
        if life.withLock({ $0.hasResult }) { return complete() }
        do { try enter(chosenLoop ?? ResidentThread.operations.runLoop()) } catch {
            life.withLock { _ = $0.takeResult(.failure(error)) }
            complete()
        }
    }

    /// Not called: ``start()`` has ``operationDidStart()`` called instead.
    public final override func main() {}

    /// Cancels the operation: before it is started it will finish without having begun; from then on
    /// ``operationDidCancel()`` is called on the loop's thread. Does nothing once it has finished.
    open override func cancel() {
        super.cancel()
        guard isCancelled, life.withLock({ $0.cancel() }) else { return }
        if !progress.isCancelled { progress.cancel() }
        callLoop()
    }
}

/// Why an operation failed whose run loop is no more: its thread has ended.
public struct RunLoopHasEnded: Error, Hashable {}

// MARK: - On the loop

extension RunLoopOperation {
    /// Joins `loop`, which then begins the work.
    private func enter(_ loop: RunLoop) throws {
        let source = RunLoop.Source(
            cancelled: { [self] loop, _ in if loop.isCurrent { loopEnded() } }, perform: { [self] in serve() }
        )
        self.source.withLock { $0 = source }
        life.withLock { $0.loop = loop }
        for mode in runLoopModes { loop.add(source, forMode: mode) }
        guard runLoopModes.contains(where: { loop.contains(source, forMode: $0) }) || isFinished else {
            throw RunLoopHasEnded()
        }
        callLoop()
    }

    /// Has the loop look at what there is to do.
    private func callLoop() {
        guard let source = source.withLock({ $0 }) else { return }
        source.signal()
        life.withLock { $0.loop }?.wakeUp()
    }

    /// Does, on the loop's thread, whatever is due.
    private func serve() {
        while let step = life.withLock({ $0.nextStep() }) {
            switch step {
            case .start: operationDidStart()
            case .cancel: operationDidCancel()
            case .finish: return complete()
            }
            life.withLock { $0.stepEnded() }
        }
    }

    /// The loop's thread ends, or the operation has left it.
    private func loopEnded() {
        guard !isFinished else { return }
        life.withLock { _ = $0.takeResult(.failure(RunLoopHasEnded())) }
        if life.withLock({ $0.nextStep() }) == .finish { complete() }
    }

    /// Finishes, with a result at hand, once.
    private func complete() {
        guard let hadBegun = life.withLock({ $0.beginCompleting() }) else { return }
        if hadBegun { operationWillFinish() }
        work = nil
        _ = makeWork.withLock { $0.take() }
        let source = source.withLock { $0.take() }
        if case .success = life.withLock({ $0.result }) {
            progress.completedUnitCount = progress.totalUnitCount
        }
        willChangeValue(forKey: "isExecuting")
        willChangeValue(forKey: "isFinished")
        life.withLock { $0.complete() }
        didChangeValue(forKey: "isExecuting")
        didChangeValue(forKey: "isFinished")
        completionBlock = nil
        source?.invalidate()
    }
}
