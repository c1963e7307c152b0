import CReactorLinux
import Synchronization
import SystemPackage

/// Parks a task until a run loop's callback unparks it: the task continues inside the callback, if it belongs on the loop's
/// thread.
///
/// A continuation would resume through the generic executor: from the loop's thread to the pool's and back
/// for each element. Here the task calls an actor that is its own executor, and that keeps the call's job
/// instead of running it. To unpark the task is to run that job on the loop's executor, or on the main actor's:
/// the call returns, and the task is where it wants to be. Nothing is allocated for a suspension.
///
/// One task is parked at a time. Unparking without one leaves a permit: the next task is not parked.
///
/// `@safe` is right because this retains the executor whose unowned references it keeps.
@safe @usableFromInline
final actor TaskParker: SerialExecutor {
    /// Where the parked task continues: a hint, computed once for an actor. If it is stale, the runtime moves the task.
    private struct Place {
        enum Isolation { case loop, main, other }

        /// The address of the actor that the task is isolated to; 0 for none, 1 before the first suspension.
        var actor: UInt = 1
        var isolation = Isolation.other
        /// Whether the task prefers the loop's executor: the runtime takes a task with a preference to be elsewhere unless
        /// its job is run with that.
        var prefersLoop = false
    }

    nonisolated let loop: RunLoop
    nonisolated let executor: RunLoop.Executor
    /// What the runtime calls ``executor``, in each of its roles.
    private let serial: UnownedSerialExecutor
    private let preferred: UnownedTaskExecutor
    private let state: Mutex<State>
    /// What the call changes, so that the compiler cannot leave the call out.
    private var suspensions = 0

    private struct State {
        enum Phase {
            case idle, permitted
            case parked(UnownedJob)
        }

        var phase: Phase
        var place = Place()
    }

    /// - Parameters:
    ///   - executor: That of `loop` and the modes in which tasks are unparked.
    ///   - hasPermit: Whether the first task is not parked.
    init(on loop: RunLoop, _ executor: RunLoop.Executor, hasPermit: Bool = false) {
        (self.loop, self.executor) = (loop, executor)
        state = Mutex(State(phase: hasPermit ? .permitted : .idle))
        unsafe serial = executor.asUnownedSerialExecutor()
        unsafe preferred = executor.asUnownedTaskExecutor()
    }

    @usableFromInline
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe UnownedSerialExecutor(ordinary: self) }

    // MARK: Parking

    /// Parks the calling task until it is unparked, unless there is a permit. Its cancellation unparks it too: a task that has
    /// been cancelled before is not parked.
    ///
    /// Does what `withTaskCancellationHandler` does, in one asynchronous frame in place of three.
    @inline(never)
    @usableFromInline
    func park(isolation: isolated (any Actor)?) async {
        guard !takePermit(at: isolation) else { return }
        // The caller retains the parker until the task continues.
        let registration = unsafe reactor_unpark_on_cancellation(CallbackContext.address(of: self))
        await suspend()
        reactor_forget_cancellation(registration)
    }

    /// As ``park(isolation:)``, but until `deadline` at most. May return early.
    ///
    /// - Throws: `Errno.canceled` if the task was cancelled before, `Errno.timedOut` if `deadline` has passed.
    nonisolated(nonsending) func park(until deadline: Deadline?) async throws(Errno) {
        if Task.isCancelled { throw .canceled }
        guard let deadline else { return await park(isolation: #isolation) }
        guard deadline > loop.now else { throw .timedOut }
        let timer = UnparkTimer(deadline, at: self)
        await park(isolation: #isolation)
        withExtendedLifetime(timer) {}
    }

    /// As ``park(isolation:)``, though the task has been cancelled.
    func parkIgnoringCancellation(isolation: isolated (any Actor)?) async {
        guard !takePermit(at: isolation) else { return }
        await suspend()
    }

    /// Takes the permit, if there is one. If not, remembers where the task is to continue.
    @inline(__always)
    private nonisolated func takePermit(at actor: (any Actor)?) -> Bool {
        let address = actor.map { UInt(bitPattern: ObjectIdentifier($0)) } ?? 0
        let (isPermitted, isKnown) = state.withLock { state in
            guard case .permitted = state.phase else { return (false, state.place.actor == address) }
            state.phase = .idle
            return (true, true)
        }
        if !isKnown { remember(actor, at: address) }
        return isPermitted
    }

    private nonisolated func remember(_ actor: (any Actor)?, at address: UInt) {
        let prefersLoop = unsafe withUnsafeCurrentTask { unsafe $0?.unownedTaskExecutor == preferred }
        let place = Place(actor: address, isolation: isolation(of: actor), prefersLoop: prefersLoop)
        state.withLock { $0.place = place }
    }

    private nonisolated func isolation(of actor: (any Actor)?) -> Place.Isolation {
        guard let actor else { return .other }
        if actor === MainActor.shared { return executor.isMain ? .main : .other }
        return executor.serves(actor) ? .loop : .other
    }

    @inline(never)
    private func suspend() { suspensions &+= 1 }

    /// Keeps the job of the task that has called ``suspend()``.
    @usableFromInline
    nonisolated func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let unparked = state.withLock { state -> Place? in
            switch state.phase {
            case .idle:
                state.phase = .parked(job)
                return nil
            case .permitted:
                state.phase = .idle
                return state.place
            case .parked:
                fatalError(
                    "Two tasks wait for the same events of a run loop: only one may wait for them at a time.")
            }
        }
        // Unparked since the task has looked: by its cancellation, or by the loop for a task on another thread.
        if let unparked { send(job, to: unparked) }
    }

    /// Whether a task is parked. May be asked on any thread.
    nonisolated var isParked: Bool {
        state.withLock { if case .parked = $0.phase { true } else { false } }
    }

    // MARK: Unparking, from any thread

    /// Lets the parked task, or the next one, continue: at once, if it belongs on the loop's thread and this is that.
    nonisolated func unpark() {
        guard let (job, place) = takeJob() else { return }
        guard loop.isCurrent else { return send(job, to: place) }
        let serial = unsafe place.isolation == .main ? MainActor.sharedUnownedExecutor : serial
        if !place.prefersLoop {
            unsafe job.runSynchronously(on: serial)
        } else if place.isolation == .other {
            unsafe job.runSynchronously(on: preferred)
        } else {
            unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: preferred)
        }
    }

    /// As ``unpark()``, but the task continues later.
    nonisolated func unparkLater() {
        if let (job, place) = takeJob() { send(job, to: place) }
    }

    /// As ``unpark()``, but on the loop's thread the task continues after the loop's other work.
    nonisolated func unparkAfterPass() {
        guard loop.isCurrent else { return unparkLater() }
        loop.inbox.post(PostedBlock(modes: executor.modes, isSource: true) { [self] in unpark() })
    }

    /// Takes the job of the parked task, or leaves a permit if there is none.
    @inline(__always)
    private nonisolated func takeJob() -> (UnownedJob, Place)? {
        state.withLock { state in
            guard case .parked(let job) = state.phase else {
                state.phase = .permitted
                return nil
            }
            state.phase = .idle
            return (job, state.place)
        }
    }

    /// Lets the task of `job` continue by way of the loop or the main actor, if it belongs there, and otherwise of the pool,
    /// from which the runtime moves it to its actor or its preferred executor. The pool may have no thread.
    private nonisolated func send(_ job: UnownedJob, to place: Place) {
        if place.prefersLoop || place.isolation == .loop { return executor.resume(job) }
        if place.isolation == .main { return MainActor.shared.enqueue(job) }
        globalConcurrentExecutor.enqueue(job)
    }
}

/// A timer that unparks a task at a deadline. It ends with this value.
struct UnparkTimer: ~Copyable {
    private let timer: Timer

    /// - Parameters:
    ///   - place: Where the timer fires; nil for the parker's loop and modes.
    ///   - file: The client's file, for reports, if it knows of the timer.
    ///   - line: Its line.
    init(
        _ deadline: Deadline, tolerance: Duration = .zero, at parker: TaskParker,
        on place: (loop: RunLoop, modes: ModeSet)? = nil, file: StaticString = #fileID, line: UInt = #line
    ) {
        let (loop, modes) = place ?? (parker.loop, parker.executor.modes)
        timer = Timer(fireDate: deadline, of: loop, tolerance: tolerance, file, line) { _ in parker.unpark() }
        for mode in modes.members { loop.add(timer, forMode: mode) }
    }

    deinit { timer.invalidate() }
}

/// Called by the thread that cancels a parked task.
@c(reactor_unpark)
func unparkTask(_ parker: UnsafeMutableRawPointer) {
    unsafe CallbackContext.object(parker, as: TaskParker.self).unparkLater()
}
