import CReactorLinux
import Synchronization

/// A suspension that a run loop's callback ends: the task that waits continues inside the callback, if it
/// belongs on the loop's thread.
///
/// A continuation would resume through the generic executor: from the loop's thread to the pool's and back
/// for each element. Here the task calls an actor that is its own executor, and that keeps the call's job
/// instead of running it. To open the gate is to run that job on the loop's executor, or on the main actor's:
/// the call returns, and the task is where it wants to be. Nothing is allocated for a suspension.
///
/// One task waits at a time. An opening that no task waits for lets the next one through.
///
/// `@safe` is right because the gate retains the executor whose unowned references it keeps.
@safe @usableFromInline
final actor Gate: SerialExecutor {
    /// A hint: where the waiting task continues. If it is stale, the runtime moves the task, so it is computed
    /// once for an actor.
    private struct Place {
        enum Isolation { case loop, main, other }

        /// The address of the actor that the task is isolated to; 0 for none, 1 before the first suspension.
        var actor: UInt = 1
        var isolation = Isolation.other
        /// Whether the task prefers the loop's executor: the runtime takes a task with a preference to be
        /// elsewhere unless its job is run with that.
        var prefersLoop = false
    }

    nonisolated let executor: RunLoop.Executor
    /// What the runtime calls ``executor``, in each of its roles.
    private let serial: UnownedSerialExecutor
    private let preferred: UnownedTaskExecutor
    /// Closed, open, or the address of the job that waits.
    private let state = Atomic(Gate.closed)
    /// Proof: one task waits at a time. It sets this before it parks its job, which releases, and the thread that
    /// reads this has taken the job, which acquires, or runs the task itself.
    private nonisolated(unsafe) var place = Place()
    /// What the call changes, so that the compiler cannot leave the call out.
    private var passages = 0

    private static let closed: UInt = 0
    private static let open: UInt = 1

    /// - Parameter executor: That of the loop and the modes in which the gate is opened.
    init(on executor: RunLoop.Executor) {
        self.executor = executor
        unsafe serial = executor.asUnownedSerialExecutor()
        unsafe preferred = executor.asUnownedTaskExecutor()
    }

    @usableFromInline
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe UnownedSerialExecutor(ordinary: self) }

    // MARK: Waiting

    /// Waits until the gate is opened, and closes it again. The task's cancellation opens it too: a task that
    /// has been cancelled before does not wait.
    ///
    /// Does what `withTaskCancellationHandler` does, in one asynchronous frame in place of three.
    @inline(never)
    @usableFromInline
    func wait(isolation: isolated (any Actor)?) async {
        guard !passIfOpen() else { return }
        remember(isolation)
        // The caller retains the gate until the task continues.
        let registration = unsafe reactor_open_gate_on_cancellation(Unmanaged.passUnretained(self).toOpaque())
        await pass()
        unsafe reactor_forget_cancellation(registration)
    }

    /// As ``wait(isolation:)``, but the task's cancellation calls `onCancel`, which is to open the gate.
    ///
    /// The closure captures the isolation, which it then has: without that the task would go by way of the
    /// generic executor.
    func wait(isolation: isolated (any Actor)?, onCancel: @Sendable () -> Void) async {
        await withTaskCancellationHandler(
            operation: {
                _ = isolation
                await waitIgnoringCancellation(isolation: isolation)
            }, onCancel: onCancel, isolation: isolation)
    }

    /// As ``wait(isolation:)``, though the task has been cancelled.
    func waitIgnoringCancellation(isolation: isolated (any Actor)?) async {
        guard !passIfOpen() else { return }
        remember(isolation)
        await pass()
    }

    private nonisolated func passIfOpen() -> Bool {
        state.compareExchange(expected: Self.open, desired: Self.closed, ordering: .acquiring).exchanged
    }

    @inline(__always)
    private nonisolated func remember(_ actor: (any Actor)?) {
        let address = actor.map { UInt(bitPattern: ObjectIdentifier($0)) } ?? 0
        if unsafe place.actor != address { unsafe place = place(of: actor, at: address) }
    }

    @inline(never)
    private nonisolated func place(of actor: (any Actor)?, at address: UInt) -> Place {
        let prefersLoop = unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor == preferred }
        return Place(actor: address, isolation: isolation(of: actor), prefersLoop: prefersLoop)
    }

    private nonisolated func isolation(of actor: (any Actor)?) -> Place.Isolation {
        guard let actor else { return .other }
        if actor === MainActor.shared { return executor.isMain ? .main : .other }
        return executor.serves(actor) ? .loop : .other
    }

    @inline(never)
    private func pass() { passages &+= 1 }

    /// Keeps the job of the task that has called ``pass()``.
    @usableFromInline
    nonisolated func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let address = unsafe unsafeBitCast(job, to: UInt.self)
        let (isParked, found) = state.compareExchange(
            expected: Self.closed, desired: address, successOrdering: .releasing, failureOrdering: .acquiring)
        if isParked { return }
        require(found == Self.open, "Two tasks wait for the same events of a run loop: only one may.")
        // Opened since the task has looked: by its cancellation, or by the loop for a task on another thread.
        _ = state.exchange(Self.closed, ordering: .acquiring)
        send(job)
    }

    // MARK: Opening

    /// Lets the task that waits, or the next one, continue: at once, if it belongs on the loop's thread.
    /// Called on the loop's thread.
    nonisolated func open() {
        guard let job = takeJob() else { return }
        let place = unsafe place
        let serial = unsafe place.isolation == .main ? MainActor.sharedUnownedExecutor : serial
        if !place.prefersLoop {
            unsafe job.runSynchronously(on: serial)
        } else if place.isolation == .other {
            unsafe job.runSynchronously(on: preferred)
        } else {
            unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: preferred)
        }
    }

    /// As ``open()``, from any thread: the task continues later.
    nonisolated func openFromAnywhere() {
        if let job = takeJob() { send(job) }
    }

    /// Takes the job that waits, or opens the gate if there is none.
    private nonisolated func takeJob() -> UnownedJob? {
        var seen = state.load(ordering: .acquiring)
        while true {
            let wanted = seen <= Self.open ? Self.open : Self.closed
            let (isDone, current) = state.weakCompareExchange(
                expected: seen, desired: wanted, successOrdering: .acquiringAndReleasing,
                failureOrdering: .acquiring)
            guard isDone else {
                seen = current
                continue
            }
            return wanted == Self.open ? nil : unsafe unsafeBitCast(seen, to: UnownedJob.self)
        }
    }

    /// Has `job` run where it does not depend on what the calling thread is doing.
    private nonisolated func send(_ job: UnownedJob) {
        if unsafe place.prefersLoop || place.isolation == .loop {
            executor.resume(job)
        } else {
            globalConcurrentExecutor.enqueue(ExecutorJob(job))
        }
    }
}

/// A timer that lets a task which waits at a gate continue at a deadline. It ends with this value.
struct GateTimer: ~Copyable {
    private let timer: Timer

    /// - Parameters:
    ///   - file: The client's file, for reports, if it knows of the timer.
    ///   - line: Its line.
    ///   - open: Opens the gate, on the loop's thread.
    init(
        _ deadline: Deadline, tolerance: Duration = .zero, on loop: RunLoop, inModes modes: ModeSet,
        file: StaticString = #fileID, line: UInt = #line, _ open: @escaping @Sendable () -> Void
    ) {
        timer = Timer(fireDate: deadline, tolerance: tolerance, file: file, line: line) { _ in open() }
        for mode in modes.members { loop.add(timer, forMode: mode) }
    }

    deinit { timer.invalidate() }
}

/// Called by the thread that cancels a task which waits at a gate.
@c(reactor_open_gate)
func openGate(_ gate: UnsafeMutableRawPointer) {
    unsafe Unmanaged<Gate>.fromOpaque(gate).takeUnretainedValue().openFromAnywhere()
}
