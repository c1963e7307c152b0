import CReactorLinux
import Synchronization
import SystemPackage

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

    nonisolated let loop: RunLoop
    nonisolated let executor: RunLoop.Executor
    /// What the runtime calls ``executor``, in each of its roles.
    private let serial: UnownedSerialExecutor
    private let preferred: UnownedTaskExecutor
    private let state: Mutex<State>
    /// What the call changes, so that the compiler cannot leave the call out.
    private var passages = 0

    private struct State {
        enum Phase {
            case closed, open
            case parked(UnownedJob)
        }

        var phase: Phase
        var place = Place()
    }

    /// - Parameters:
    ///   - executor: That of `loop` and the modes in which the gate is opened.
    ///   - isOpen: Whether the first task that waits continues at once.
    init(on loop: RunLoop, _ executor: RunLoop.Executor, isOpen: Bool = false) {
        (self.loop, self.executor) = (loop, executor)
        state = Mutex(State(phase: isOpen ? .open : .closed))
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
        guard !passIfOpen(to: isolation) else { return }
        // The caller retains the gate until the task continues.
        let registration = unsafe reactor_open_gate_on_cancellation(CallbackContext.address(of: self))
        await pass()
        reactor_forget_cancellation(registration)
    }

    /// As ``wait(isolation:)``, but until `deadline` at most. May return early.
    ///
    /// - Throws: `Errno.canceled` if the task was cancelled before, `Errno.timedOut` if `deadline` has passed.
    nonisolated(nonsending) func wait(until deadline: Deadline?) async throws(Errno) {
        if Task.isCancelled { throw .canceled }
        guard let deadline else { return await wait(isolation: #isolation) }
        guard deadline > loop.now else { throw .timedOut }
        let timer = GateTimer(deadline, at: self)
        await wait(isolation: #isolation)
        withExtendedLifetime(timer) {}
    }

    /// As ``wait(isolation:)``, though the task has been cancelled.
    func waitIgnoringCancellation(isolation: isolated (any Actor)?) async {
        guard !passIfOpen(to: isolation) else { return }
        await pass()
    }

    /// Closes the gate if it is open. If not, remembers where the task is to continue.
    @inline(__always)
    private nonisolated func passIfOpen(to actor: (any Actor)?) -> Bool {
        let address = actor.map { UInt(bitPattern: ObjectIdentifier($0)) } ?? 0
        let (isOpen, isKnown) = state.withLock { state in
            guard case .open = state.phase else { return (false, state.place.actor == address) }
            state.phase = .closed
            return (true, true)
        }
        if !isKnown { remember(actor, at: address) }
        return isOpen
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
    private func pass() { passages &+= 1 }

    /// Keeps the job of the task that has called ``pass()``.
    @usableFromInline
    nonisolated func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let opened = state.withLock { state -> Place? in
            switch state.phase {
            case .closed:
                state.phase = .parked(job)
                return nil
            case .open:
                state.phase = .closed
                return state.place
            case .parked:
                fatalError(
                    "Two tasks wait for the same events of a run loop: only one may wait for them at a time.")
            }
        }
        // Opened since the task has looked: by its cancellation, or by the loop for a task on another thread.
        if let opened { send(job, to: opened) }
    }

    // MARK: Opening, from any thread

    /// Lets the task that waits, or the next one, continue: at once, if it belongs on the loop's thread and this is that.
    nonisolated func open() {
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

    /// As ``open()``, but the task continues later.
    nonisolated func openLater() {
        if let (job, place) = takeJob() { send(job, to: place) }
    }

    /// As ``open()``, but on the loop's thread the task continues after the loop's other work.
    nonisolated func openAfterPass() {
        guard loop.isCurrent else { return openLater() }
        loop.inbox.post(PostedBlock(modes: executor.modes, isSource: true) { [self] in open() })
    }

    /// Takes the job that waits, or opens the gate if there is none.
    @inline(__always)
    private nonisolated func takeJob() -> (UnownedJob, Place)? {
        state.withLock { state in
            guard case .parked(let job) = state.phase else {
                state.phase = .open
                return nil
            }
            state.phase = .closed
            return (job, state.place)
        }
    }

    /// Enqueues `job` instead of running it inline.
    private nonisolated func send(_ job: UnownedJob, to place: Place) {
        if place.prefersLoop || place.isolation == .loop {
            executor.resume(job)
        } else {
            globalConcurrentExecutor.enqueue(ExecutorJob(job))
        }
    }
}

/// A timer that opens a gate at a deadline. It ends with this value.
struct GateTimer: ~Copyable {
    private let timer: Timer

    /// - Parameters:
    ///   - place: Where the timer fires; nil for the gate's loop and modes.
    ///   - file: The client's file, for reports, if it knows of the timer.
    ///   - line: Its line.
    init(
        _ deadline: Deadline, tolerance: Duration = .zero, at gate: Gate,
        on place: (loop: RunLoop, modes: ModeSet)? = nil, file: StaticString = #fileID, line: UInt = #line
    ) {
        let (loop, modes) = place ?? (gate.loop, gate.executor.modes)
        timer = Timer(fireDate: deadline, of: loop, tolerance: tolerance, file, line) { _ in gate.open() }
        for mode in modes.members { loop.add(timer, forMode: mode) }
    }

    deinit { timer.invalidate() }
}

/// Called by the thread that cancels a task which waits at a gate.
@c(reactor_open_gate)
func openGate(_ gate: UnsafeMutableRawPointer) {
    unsafe CallbackContext.object(gate, as: Gate.self).openLater()
}
