import Glibc
import SystemPackage

/// A thread that runs its loop in the default mode until ``stop()``, even while the loop has nothing to serve.
///
/// ```swift
/// let network = try RunLoopThread(name: "network")
/// network.runLoop.perform { print("on the thread called network") }
/// network.stop()
/// ```
///
/// The thread runs until ``stop()`` is called, even if nothing refers to this object any more. All methods may be called
/// from any thread.
public final class RunLoopThread: Sendable {
    /// The thread's loop, which runs until ``stop()``.
    public let runLoop: RunLoop
    /// The thread's name.
    public let name: String

    private let keepAlive: RunLoop.Source
    private let thread: JoinableThread
    private let ending: Ending

    /// The end of the loop, which any thread requests.
    private final class Ending: Sendable {
        /// How long the thread runs jobs of tasks that never wait, once the loop has run for the last time: the
        /// shortest time that was asked for.
        let jobTime = Mutex(Duration.seconds(Int64.max))
        /// Whether no job was left. Set when the loop has ended.
        let isComplete = AsyncPromise<Bool>()

        /// Ends the calling thread's loop.
        func endLoop() {
            // Not the thread's clock, which stands still in a test with virtual time.
            let start = ContinuousClock.now
            let isComplete = RunLoop.endCurrent { start.duration(to: .now) < jobTime.withLock { $0 } }
            self.isComplete.set(isComplete)
        }
    }

    /// Starts a thread, and returns when its loop exists.
    ///
    /// - Parameters:
    ///   - name: What debuggers and `top -H` show; the kernel keeps the first 15 bytes
    ///     (pthread_setname_np(3)).
    /// - Throws: ``IOError`` with what pthread_create(3) does: `Errno.resourceTemporarilyUnavailable` when there are too
    ///   many threads.
    public convenience init(name: String) throws(IOError) {
        do throws(Errno) {
            try self.init(name: name, receivesSignals: true, source: currentTimeSource)
        } catch {
            throw IOError(.start, "thread \(name)", error)
        }
    }

    /// - Parameters:
    ///   - receivesSignals: False for a thread of the library's own.
    ///   - source: What moves the thread's time; nil for the kernel's.
    fileprivate init(name: String, receivesSignals: Bool, source: (any TimeSource)?) throws(Errno) {
        let (keepAlive, ending) = (RunLoop.Source {}, Ending())
        let ready = Promise<RunLoop>()
        self.name = name
        (self.keepAlive, self.ending) = (keepAlive, ending)
        thread = try JoinableThread(name: name, receivesSignals: receivesSignals) {
            source?.enterThread()
            let loop = RunLoop.current
            source?.loopBegan(loop)
            loop.add(keepAlive, forMode: .default)
            ready.set(loop)
            while !loop.inbox.isEndRequested(ofActivation: 1), loop.run(in: .default) != .finished {}
            keepAlive.invalidate()
            ending.endLoop()
            source?.loopEnded(loop)
            source?.leaveThread()
        }
        runLoop = ready.wait()
    }

    /// Ends the loop after the current callback, and waits until the thread has ended.
    ///
    /// Blocks in the default mode and jobs that were queued before run first; what is left is released. Further calls, also
    /// by several threads at once, wait as well. Called on the thread itself it does not wait: the thread ends when
    /// the callback returns.
    ///
    /// Waits on the loop end. A sleep on its clock, or a stream call by a task on ``executor``, throws `CancellationError`;
    /// sequences end; other calls throw as documented. A task elsewhere continues, and a library thread serves its stream.
    /// Tasks are not cancelled.
    ///
    /// The thread runs jobs of its executors until none is queued, for at most one second if there are always more. It does
    /// not wait for tasks that are suspended for something else, such as another actor: jobs of such a task, and
    /// others that come later, run on a thread of the library, one at a time, isolated to the actors of the loop.
    /// They should not block. ``withRunLoopThread(name:_:)`` ends its thread after the tasks of its scope.
    @available(*, noasync, message: "await shutDown(timeout:)")
    public func stop() {
        requestStop(jobTime: RunLoop.jobTimeAtEnd)
        if !runLoop.isCurrent { thread.join() }
    }

    /// Ends the loop as ``stop()`` does, and suspends the task until then instead of blocking its thread.
    ///
    /// May be called from the thread's own tasks, which then continue on a library thread.
    ///
    /// - Parameter timeout: How long the thread may run jobs of tasks that never wait, after the loop has ended.
    /// - Returns: Whether no job was left. False means that the library's thread runs the rest.
    @discardableResult
    nonisolated(nonsending) public func shutDown(timeout: Duration = .seconds(10)) async -> Bool {
        requestStop(jobTime: timeout)
        let isComplete = await ending.isComplete.wait()
        thread.join()
        return isComplete
    }

    /// Ends the thread once its loop has nothing left to serve. Does not wait for that.
    package func endWhenIdle() { runLoop.perform { [keepAlive] in keepAlive.invalidate() } }

    /// The executor of the thread's loop in the common modes: for actors that live on the thread, and for
    /// tasks that prefer it.
    public var executor: RunLoop.Executor { runLoop.executor() }

    private func requestStop(jobTime: Duration) {
        ending.jobTime.withLock { $0 = min($0, jobTime) }
        runLoop.perform { [runLoop] in runLoop.requestEnd(at: 1) }
    }
}

/// Calls `body` with a new thread that runs its loop, and ends the thread when `body` has returned or thrown.
///
/// ```swift
/// try await withRunLoopThread(name: "network") { thread in
///     let account = Account(on: thread.runLoop)  // an actor
///     await account.load()
/// }
/// ```
///
/// Jobs that are queued when `body` ends run first. The calling task is suspended meanwhile.
///
/// - Parameters:
///   - name: The thread's name, as in ``RunLoopThread/init(name:)``.
///   - body: Called with the thread, in the caller's isolation. Tasks that it starts on the thread, and calls
///     of actors that live there, should have ended when it returns: those of a task group or an `async let`
///     have. For others see ``RunLoopThread/stop()``.
/// - Returns: What `body` returns.
/// - Throws: What `body` throws, and what ``RunLoopThread/init(name:)`` does.
nonisolated(nonsending) public func withRunLoopThread<Result>(
    name: String, _ body: nonisolated(nonsending) (RunLoopThread) async throws -> Result
) async throws -> Result {
    let thread = try RunLoopThread(name: name)
    do {
        let result = try await body(thread)
        await thread.shutDown(timeout: RunLoop.jobTimeAtEnd)
        return result
    } catch {
        await thread.shutDown(timeout: RunLoop.jobTimeAtEnd)
        throw error
    }
}

/// A thread that runs its loop from the first call of ``runLoop()`` until the program ends.
package final class ResidentThread: Sendable {
    private let name: String
    private let thread = Mutex<RunLoopThread?>(nil)

    package init(name: String) { self.name = name }

    /// The loop of the thread that has the calling thread's time; the first call starts the thread.
    ///
    /// - Throws: What pthread_create(3) does; the next call tries again.
    package func runLoop() throws(Errno) -> RunLoop {
        guard let source = currentTimeSource else { return try runLoopInKernelTime() }
        if let loop = source.libraryLoop as? RunLoop { return loop }
        return try source.thread(named: name) { [name] () throws(Errno) in
            try RunLoopThread(name: name, receivesSignals: false, source: source)
        }.runLoop
    }

    /// The loop of the thread that has the kernel's time, whatever the calling thread's is.
    func runLoopInKernelTime() throws(Errno) -> RunLoop {
        try thread.withLock { [name] thread throws(Errno) in
            // A child of fork(2) inherits the object, but not the thread.
            if let thread, !thread.runLoop.inbox.belongsToParent { return thread.runLoop }
            let started = try RunLoopThread(name: name, receivesSignals: false, source: nil)
            thread = started
            return started.runLoop
        }
    }
}
