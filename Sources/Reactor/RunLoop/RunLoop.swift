import CReactorLinux
import Glibc
import Synchronization

/// A thread's event loop: waits for timers, descriptors, signalled sources and posted blocks, and calls their
/// handlers.
///
/// Every thread has one, made when it is first asked for (``current``). A loop runs when its thread calls one
/// of the `run` methods, in one ``Mode`` at a time, and attends only to what was added to that mode. Handlers
/// are called on the loop's thread, with no lock held, and may call anything here, also `run` again:
/// activations nest to any depth, and nothing whose callout is under way is called a second time inside it.
///
/// Methods may be called from any thread unless they say otherwise; an addition from another thread wakes the
/// loop. The loop ends with its thread, and lets go of all that was added to it.
///
/// A loop takes five descriptors, and three more for each further mode that it runs in. Where the process has none left,
/// adding a descriptor throws `Errno.tooManyOpenFiles`; timers, blocks and the events of streams that need no descriptor
/// go on, a few milliseconds late, and the loop watches its descriptors, and the main loop the main queue, as soon as it
/// can.
///
/// Loops are not inherited across fork(2). Running, changing or posting to a parent's loop in a child that has not called
/// exec traps with a message, and the parent is unaffected. A thread that had no loop when it forked can make one in the
/// child; the main loop only if the parent had not made it. fork(2) limits what else the child of a process with several
/// threads may call: a lock of the Swift runtime that another thread held stays held.
///
/// It stands on libevent's epoll backend. Where Foundation on Linux differs: there a posted block does not
/// wake the loop, streams are never served, and observers, sources, `stop` and `wakeUp` are not public.
public final class RunLoop: Sendable {
    let identity: LoopIdentity
    let inbox = Inbox()
    private let confined: LoopBound<Core>
    private let common: Mutex<ModeSet>
    /// One for each set of modes that was asked for.
    let executors = Mutex<[Executor]>([])

    /// Whether this is the main thread's. Known without ``main``, which is not made before it is asked for: a child of
    /// fork(2) then has one of its own.
    let isMain: Bool

    private init(isMain: Bool = false) {
        self.isMain = isMain
        identity = LoopIdentity.next()
        common = Mutex(Self.firstCommonModes)
        confined = LoopBound(Core(home: identity, inbox: inbox), home: identity)
    }

    /// What only the loop's own thread may touch; traps on any other.
    var core: Core { @inline(__always) get { confined.value } }

    /// As ``core``, for as long as `body` lasts: nothing is retained.
    @inline(__always)
    func useCore<Answer>(_ body: (Core) -> Answer) -> Answer {
        unsafe Unmanaged.passUnretained(confined.value)._withUnsafeGuaranteedRef(body)
    }

    // MARK: The loops of threads

    /// The main thread's loop.
    public static let main = RunLoop(isMain: true)

    /// The calling thread's loop.
    ///
    /// In asynchronous code this is the loop of whatever thread happens to run the task, which nobody runs.
    public static var current: RunLoop {
        @inline(__always) get { ThreadLoop.get() ?? makeCurrent() }
    }

    @inline(never)
    private static func makeCurrent() -> RunLoop {
        if reactor_had_loop_before_fork() { Fork.refuse() }
        let loop = reactor_is_main_thread() ? main : RunLoop()
        loop.assertNotOfParent()
        ThreadLoop.set(loop)
        loop.core.adopt(loop, isMain: loop.isMain)
        return loop
    }

    /// Calls `body` with the calling thread's loop.
    @inline(__always)
    static func withCurrent<Answer>(_ body: (RunLoop) -> Answer) -> Answer {
        ThreadLoop.use(body)
    }

    /// Traps in a child of fork(2) if this is a loop of the parent's.
    func assertNotOfParent() {
        if inbox.isOfParent { Fork.refuse() }
    }

    /// Whether the calling thread is this loop's.
    public var isCurrent: Bool {
        if identity.isCurrent { return true }
        return isMain && !inbox.isOfParent && reactor_is_main_thread() && RunLoop.current === self
    }

    // MARK: State

    /// The mode that runs; nil outside an activation. Never ``Mode/common``.
    public var currentMode: Mode? { inbox.currentMode }

    /// Whether the loop is asleep, or about to be: true between ``Activities/beforeWaiting`` and
    /// ``Activities/afterWaiting``.
    public var isWaiting: Bool { inbox.isWaiting }

    /// Makes a sleeping loop go round once more; a loop that is awake will not sleep before its next pass.
    ///
    /// It does not end an activation. Outside an activation it does nothing.
    public func wakeUp() {
        assertNotOfParent()
        inbox.wakeUp()
    }

    /// Ends the innermost activation under way, at the end of its pass. Without an activation it does
    /// nothing.
    ///
    /// ``run()`` and ``run(until:)`` start another one, as in Cocoa; to be able to stop, run with
    /// ``run(in:until:returnAfterSourceHandled:)`` or `while !done && loop.run(mode: .default, before:
    /// .distantFuture) {}`.
    public func stop() {
        assertNotOfParent()
        inbox.stop()
    }

    // MARK: Common modes

    /// What the common set is from the start. On Linux no user interface's framework adds the tracking mode.
    static let firstCommonModes = ModeSet([.default, .tracking])

    /// The loop's common set: what ``Mode/common`` stands for.
    var commonModes: ModeSet { common.withLock { $0 } }

    /// Makes `mode` one of this loop's common modes, for good: it gets all that was, or will be, added to
    /// them. From any thread.
    ///
    /// On the loop's thread it takes effect in the pass under way, also for the mode that runs. What is removed from
    /// `mode` after this has returned stays out of it.
    public func addCommonMode(_ mode: Mode) {
        assertNotOfParent()
        guard mode != .common, common.withLock({ $0.insert(mode) }) else { return }
        atHome { core in core.modeBecameCommon(mode) }
        // Blocks and signals that waited for a common mode may run now, also if this is about to sleep.
        wakeUp()
    }

    /// Carries out `change` on the loop's thread: now if this is it, else when the loop next looks. False if
    /// that thread has ended.
    @discardableResult
    func atHome(_ change: @escaping Inbox.Command) -> Bool {
        guard isCurrent else { return inbox.post(change) }
        change(core)
        return true
    }
}

extension RunLoop: Equatable, Hashable {
    /// Whether the two are the same loop.
    public static func == (left: RunLoop, right: RunLoop) -> Bool { left === right }

    /// Hashes the loop's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(identity.number) }
}

/// The calling thread's loop, which is let go of when the thread ends.
@safe
private enum ThreadLoop {
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let code = unsafe pthread_key_create(&key, endLoop)
        precondition(code == 0, "no thread-specific key is left for run loops")
        return key
    }()

    /// The calling thread's loop; nil if it has none yet.
    @inline(__always)
    static func get() -> RunLoop? {
        guard let pointer = unsafe reactor_current_loop_object() else { return nil }
        return unsafe Unmanaged<RunLoop>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Calls `body` with the thread's loop, which is made if there is none yet: nothing is retained, as the thread keeps
    /// its loop.
    @inline(__always)
    static func use<Answer>(_ body: (RunLoop) -> Answer) -> Answer {
        let pointer = unsafe reactor_current_loop_object() ?? make()
        return unsafe Unmanaged<RunLoop>.fromOpaque(pointer)._withUnsafeGuaranteedRef(body)
    }

    @inline(never)
    private static func make() -> UnsafeMutableRawPointer {
        unsafe Unmanaged.passUnretained(RunLoop.current).toOpaque()
    }

    static func set(_ loop: RunLoop) {
        let pointer = unsafe Unmanaged.passRetained(loop).toOpaque()
        unsafe pthread_setspecific(key, pointer)
        unsafe reactor_set_current_loop(loop.identity.number, pointer)
    }

    /// Whatever is let go of may still ask for its thread's loop, and gets the one that is ending.
    static func end(_ loop: RunLoop) {
        loop.core.end()
        reactor_set_current_loop(0, nil)
    }
}

private func endLoop(_ pointer: UnsafeMutableRawPointer?) {
    guard let pointer = unsafe pointer else { return }
    let loop = unsafe Unmanaged<RunLoop>.fromOpaque(pointer)
    // A thread that has forked may end in the child, where the loop is not its own.
    if unsafe loop._withUnsafeGuaranteedRef({ $0.inbox.isOfParent }) { return }
    unsafe ThreadLoop.end(loop.takeRetainedValue())
}
