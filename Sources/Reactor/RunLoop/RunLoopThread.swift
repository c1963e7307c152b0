import Glibc
public import SystemPackage

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
    /// Set when the loop has run for the last time.
    private let ending: AsyncPromise<Void>

    /// Starts a thread, and returns when its loop exists.
    ///
    /// - Parameters:
    ///   - name: What debuggers and `top -H` show; the kernel keeps the first 15 bytes
    ///     (pthread_setname_np(3)).
    /// - Throws: What pthread_create(3) does: `Errno.resourceTemporarilyUnavailable` when there are too
    ///   many threads.
    public convenience init(name: String) throws(Errno) { try self.init(name: name, receivesSignals: true) }

    /// - Parameter receivesSignals: False for a thread of the library's own.
    fileprivate init(name: String, receivesSignals: Bool) throws(Errno) {
        let (keepAlive, ending) = (RunLoop.Source {}, AsyncPromise<Void>())
        let ready = Promise<RunLoop>()
        self.name = name
        (self.keepAlive, self.ending) = (keepAlive, ending)
        thread = try JoinableThread(name: name, receivesSignals: receivesSignals) {
            let loop = RunLoop.current
            loop.add(keepAlive, forMode: .default)
            ready.set(loop)
            while !loop.inbox.isEndRequested(ofActivation: 1) { loop.run(in: .default) }
            loop.core.finishJobs(in: .default)
            keepAlive.invalidate()
            ending.set(())
        }
        runLoop = ready.wait()
    }

    /// Ends the loop after the callback under way, and waits until the thread has ended.
    ///
    /// Blocks in the default mode and jobs that were queued before run first; what is left is released. Further calls, also
    /// by several threads at once, wait as well. Called on the thread itself it does not wait: the thread ends when
    /// the callback returns.
    ///
    /// Tasks that prefer the thread's ``executor`` and calls of actors that live on it must have ended before: a
    /// job that arrives later ends the process with a message. ``withRunLoopThread(name:_:)`` has the scope of
    /// structured tasks.
    public func stop() {
        requestStop()
        if !runLoop.isCurrent { thread.join() }
    }

    /// The executor of the thread's loop in the common modes: for actors that live on the thread, and for
    /// tasks that prefer it.
    public var executor: RunLoop.Executor { runLoop.executor() }

    private func requestStop() {
        runLoop.perform { [runLoop] in runLoop.inbox.requestEnd(ofActivation: 1) }
    }

    /// As ``stop()``, without blocking the calling thread while the loop finishes.
    nonisolated(nonsending) fileprivate func stopAndWait() async {
        requestStop()
        await ending.wait()
        thread.join()
    }
}

/// Calls `body` with a new thread that runs its loop, and ends the thread when `body` has returned or thrown.
///
/// ```swift
/// try await withRunLoopThread(name: "network") { thread in
///     let connection = Connection(on: thread.runLoop)
///     await connection.greet()
/// }
/// ```
///
/// Jobs that are queued when `body` ends run first. The calling task is suspended meanwhile; it blocks its
/// thread only while the loop releases what is left in it.
///
/// - Parameters:
///   - name: The thread's name, as in ``RunLoopThread/init(name:)``.
///   - body: Called with the thread, in the caller's isolation. Tasks that it starts on the thread, and calls
///     of actors that live there, must have ended when it returns: those of a task group or an `async let`
///     have.
/// - Returns: What `body` returns.
/// - Throws: What `body` throws, and what ``RunLoopThread/init(name:)`` does.
nonisolated(nonsending) public func withRunLoopThread<Result>(
    name: String, _ body: nonisolated(nonsending) (RunLoopThread) async throws -> Result
) async throws -> Result {
    let thread = try RunLoopThread(name: name)
    do {
        let result = try await body(thread)
        await thread.stopAndWait()
        return result
    } catch {
        await thread.stopAndWait()
        throw error
    }
}

/// A thread that runs its loop from the first call of ``runLoop()`` until the program ends.
package final class ResidentThread: Sendable {
    private let name: String
    private let thread = Mutex<RunLoopThread?>(nil)

    package init(name: String) { self.name = name }

    /// The thread's loop; the first call starts the thread.
    ///
    /// - Throws: What pthread_create(3) does; the next call tries again.
    package func runLoop() throws(Errno) -> RunLoop {
        try thread.withLock { [name] thread throws(Errno) in
            // A child of fork(2) inherits the object, but not the thread.
            if let thread, !thread.runLoop.inbox.belongsToParent { return thread.runLoop }
            let started = try RunLoopThread(name: name, receivesSignals: false)
            thread = started
            return started.runLoop
        }
    }
}
