import CReactorLinux
import Glibc
import Synchronization

/// A thread's event loop: waits for timers, descriptors, signalled sources and posted blocks, and calls their handlers.
///
/// Every thread has one, made by the first use of ``current``. A loop runs when its thread calls one of the `run` methods,
/// in one ``Mode`` at a time, and serves only what was added to that mode. Handlers are called on the loop's thread, with no
/// lock held, and may call any method, including `run`: activations nest to any depth, and no handler is called again while
/// it is in progress.
///
/// ```swift
/// let loop = RunLoop.current
/// Timer.scheduled(after: .seconds(1)) { _ in loop.stop() }
/// DispatchQueue.global().async {
///     loop.perform { print("on the loop's thread") }
/// }
/// loop.run(in: .default)
/// ```
///
/// Methods may be called from any thread unless their documentation says otherwise; an addition from another thread wakes
/// the loop. The loop ends with its thread, and releases everything that was added to it.
///
/// A loop uses five descriptors, and three more for each further mode that it runs in. If the process has none left, adding a
/// descriptor source throws `Errno.tooManyOpenFiles`. Timers, blocks and streams without descriptors are still served, a few
/// milliseconds late, and the loop watches its descriptors, and the main loop the main queue, as soon as it can.
///
/// libdispatch, which runs resolvers, hand-offs and Swift's tasks, is stricter: while work waits for a thread, it opens a /proc
/// file once a second, and aborts if no descriptor is free. The library starts libdispatch only if four are left besides its
/// own, and listeners accept no connection with the last four. Nothing keeps other code, or streams that the program opens,
/// from using those afterwards. A process that may reach its limit (`RLIMIT_NOFILE`) should bound what it opens.
///
/// Loops are not inherited across fork(2). Running, changing or posting to a parent's loop in a child that has not called
/// exec traps with a message, and does not affect the parent. The thread that forked is the child's main thread. It can
/// make its loop, the child's ``main``, only if it had no loop and the parent had not used ``main`` on any thread. Threads that
/// the child starts can always make theirs. fork(2) limits what else the child of a
/// process with several threads may call: a lock of the Swift runtime that another thread held stays locked, and a `Mutex`
/// of the Synchronization module traps when threads of the child contend for it.
///
/// The loop uses libevent's epoll backend. Foundation on Linux differs: there a posted block does not wake the loop, streams
/// are never served, and observers, sources, `stop` and `wakeUp` are not public.
public final class RunLoop: Sendable {
    let identity: LoopIdentity
    let inbox: Inbox
    private let confined: LoopBound<Core>
    /// One for each set of modes that was asked for.
    let executors = Mutex<[Executor]>([])

    /// Whether this is the main thread's loop. Stored, because reading ``main`` would create the main loop, which a child of
    /// fork(2) may still need to do itself.
    let isMain: Bool

    init(isMain: Bool = false) {
        self.isMain = isMain
        identity = LoopIdentity.next()
        let name = isMain ? "main run loop" : "run loop of \(currentThreadName) (loop \(identity.number))"
        inbox = Inbox(loopName: name, isReportedForPool: !isMain && Self.isOfReportedPoolThread)
        confined = LoopBound(Core(identity: identity, inbox: inbox), owner: identity)
        if LoopDiagnostics.isReporting { Watchdog.supervise(self) }
    }

    /// The part of the loop that only its own thread may use; traps on any other.
    var core: Core { @inline(__always) get { confined.value } }

    /// Calls `body` with ``core``, without retaining it. Proof: this loop retains it, and the caller this loop.
    @inline(__always)
    func useCore<Result>(_ body: (Core) -> Result) -> Result {
        unsafe Unmanaged.passUnretained(confined.value)._withUnsafeGuaranteedRef(body)
    }

    // MARK: The loops of threads

    /// The main thread's loop.
    public static let main = RunLoop(isMain: true)

    /// The calling thread's loop.
    ///
    /// In asynchronous code this would be the loop of the thread that happens to run the task, and that loop never runs: the
    /// compiler refuses it there. `ReactorFoundation` permits it, as Foundation does. With `REACTOR_DEBUG=1` in the
    /// environment, the first use on a thread of Dispatch's or Swift's pool is reported on standard error.
    @_disfavoredOverload
    @available(*, noasync, message: "name the loop: RunLoop.main, or a RunLoopThread's")
    public static var current: RunLoop {
        @inline(__always) get { ofCallingThread }
    }

    /// As ``current``, in any context.
    package static var ofCallingThread: RunLoop {
        @inline(__always) get { existing ?? makeCurrent() }
    }

    @inline(never)
    private static func makeCurrent() -> RunLoop {
        if reactor_had_loop_before_fork() { ProcessIdentity.refuseParentsLoop() }
        let loop = reactor_is_main_thread() ? main : RunLoop()
        loop.requireNotOfParent()
        retainCurrent(loop)
        loop.core.adopt(loop)
        loop.inbox.meter.processorClock.begin()
        if loop.isMain {
            reportAtExit()
        } else if loop.inbox.isReportedForPool {
            loop.reportPoolThread()
        }
        return loop
    }

    /// Traps in a child of fork(2) if its parent made the loop.
    func requireNotOfParent() {
        if inbox.belongsToParent { ProcessIdentity.refuseParentsLoop() }
    }

    /// Whether the calling thread is this loop's.
    public var isCurrent: Bool {
        if identity.isCurrent { return true }
        return isMain && !inbox.belongsToParent && reactor_is_main_thread() && RunLoop.current === self
    }

    // MARK: State

    /// Which loop it is, for messages.
    var name: String { inbox.loopName }

    /// The mode that runs; nil outside an activation. Never ``Mode/common``.
    public var currentMode: Mode? { inbox.currentMode }

    /// Whether the loop is asleep, or about to be: true between ``Activities/beforeWaiting`` and
    /// ``Activities/afterWaiting``.
    package var isWaiting: Bool { inbox.isWaiting }

    /// Wakes the loop: a sleeping loop runs another pass, and a loop that is awake does not sleep before its next one.
    ///
    /// It does not end an activation. Outside an activation it does nothing.
    public func wakeUp() {
        requireNotOfParent()
        inbox.wakeUp()
    }

    /// Ends the innermost activation at the end of its pass. Without an activation it does nothing.
    ///
    /// Stops the activation that is innermost at the time of the call. The request is dropped if that activation ends first.
    ///
    /// ``run()`` and ``run(until:)`` start another one, as in Cocoa. To run a loop that can be stopped, use
    /// ``run(in:until:returnAfterSourceHandled:)`` or `while !done && loop.run(mode: .default, before:
    /// .distantFuture) {}`.
    public func stop() {
        requireNotOfParent()
        inbox.stop()
    }

    // MARK: Common modes

    /// The initial common set. It includes the tracking mode because on Linux no user interface framework adds it.
    static let firstCommonModes = ModeSet([.default, .tracking])

    /// The loop's common set: what ``Mode/common`` stands for.
    var commonModes: ModeSet { inbox.commonModes }

    /// Adds `mode` to this loop's common modes permanently: it gets everything that was, or will be, added to them. May be
    /// called from any thread.
    ///
    /// On the loop's thread it takes effect in the current pass, also for the running mode. What is removed from `mode`
    /// after this has returned stays out of it.
    public func addCommonMode(_ mode: Mode) {
        requireNotOfParent()
        guard mode != .common, inbox.insertCommonMode(mode) else { return }
        runOnLoopThread { core in core.modeBecameCommon(mode) }
        // Blocks and signals for the common modes may run now, even if the loop is about to sleep.
        wakeUp()
    }

    /// The present moment on the loop's thread, asked from any: a test may have replaced that thread's time.
    package var now: Deadline { Deadline(uptimeNanoseconds: ReplacedClocks.now(of: self)) }

    /// The thread's time source has been replaced: the next wait sets its timer again, even to the same date.
    package func timeWasReplaced() { core.waker?.forgetTimer() }

    /// How many runs are nested; 0 outside a run.
    package var depth: Int { inbox.activationCount }

    /// Ends the run at `depth`, once its callback has returned, and those that begin there until ``withdrawEnd(at:)``. Runs
    /// that are nested in it continue. The outermost run has depth 1.
    package func requestEnd(at depth: Int) { inbox.requestEnd(ofActivation: depth) }

    package func withdrawEnd(at depth: Int) { inbox.withdrawEnd(ofActivation: depth) }

    /// Carries out `change` on the loop's thread: at once if it is the calling thread, else when the loop collects its
    /// inbox. False if that thread has ended.
    @discardableResult
    func runOnLoopThread(_ change: @escaping Inbox.Command) -> Bool {
        guard isCurrent else { return inbox.post(change) }
        change(core)
        inbox.wakeIfHosted()
        return true
    }
}

extension RunLoop: Equatable, Hashable {
    /// Whether the two are the same loop.
    public static func == (left: RunLoop, right: RunLoop) -> Bool { left === right }

    /// Hashes the loop's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(identity.number) }
}

// MARK: - The calling thread's loop

// The thread retains its loop, and releases it when it ends: the pointer is thread-local, and that of a retained loop or null.

extension RunLoop {
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = unsafe pthread_key_create(&key, endLoop)
        require(code == 0, "pthread_key_create failed: the process has no thread-specific key left.")
        return key
    }()

    /// The calling thread's loop; nil if it has none yet.
    @inline(__always)
    static var existing: RunLoop? {
        unsafe reactor_current_loop_object().map { unsafe CallbackContext.object($0) }
    }

    /// Calls `body` with the thread's loop, which is made if there is none yet, and not retained.
    @inline(__always)
    static func withCurrent<Result>(_ body: (RunLoop) -> Result) -> Result {
        unsafe CallbackContext.borrow(reactor_current_loop_object() ?? addressOfCurrent(), body)
    }

    @inline(never)
    private static func addressOfCurrent() -> UnsafeMutableRawPointer { CallbackContext.address(of: current) }

    private static func retainCurrent(_ loop: RunLoop) {
        let pointer = CallbackContext.retain(loop)
        unsafe pthread_setspecific(key, pointer)
        unsafe reactor_set_current_loop(loop.identity.number, pointer)
    }

    /// Objects that are destroyed here may still ask for the thread's loop, and get the one that ends.
    fileprivate func end(servingJobsWhile isInTime: () -> Bool) -> Bool {
        let isComplete = core.end(servingJobsWhile: isInTime)
        inbox.meter.processorClock.end()
        inbox.meter.end()
        reactor_set_current_loop(0, nil)
        return isComplete
    }

    /// Ends the calling thread's loop, before the thread ends.
    ///
    /// - Parameter isInTime: Whether the thread may keep running jobs of the loop's executors.
    /// - Returns: Whether no job is left.
    static func endCurrent(servingJobsWhile isInTime: () -> Bool) -> Bool {
        guard let pointer = unsafe reactor_current_loop_object() else { return true }
        pthread_setspecific(key, nil)
        let loop = unsafe CallbackContext.take(pointer, as: RunLoop.self)
        return loop.end(servingJobsWhile: isInTime)
    }

    /// How long a thread that ends runs jobs of tasks that never wait: tasks that close what they use need much less, and
    /// a caller of ``RunLoopThread/stop()`` can wait for so long.
    static var jobTimeAtEnd: Duration { .seconds(1) }
}

private func endLoop(_ pointer: UnsafeMutableRawPointer?) {
    let loop = unsafe CallbackContext.object(pointer, as: RunLoop.self)
    // In a child of fork(2) the thread that forked may end, whose loop belongs to the parent.
    if loop.inbox.belongsToParent { return }
    let deadline = Deadline.now + RunLoop.jobTimeAtEnd
    _ = loop.end { Deadline.now < deadline }
    _ = unsafe CallbackContext.take(pointer, as: RunLoop.self)
}
