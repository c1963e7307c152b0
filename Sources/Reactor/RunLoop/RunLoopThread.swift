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
/// All methods may be called from any thread.
public final class RunLoopThread: Sendable {
    /// The thread's loop; it runs from before the initializer returns until ``stop()``.
    public let runLoop: RunLoop
    /// The thread's name.
    public let name: String

    private let keepAlive: RunLoop.Source
    private let thread: JoinableThread

    /// Starts a thread, and returns when its loop exists.
    ///
    /// - Parameters:
    ///   - name: What debuggers and `top -H` show; the kernel keeps the first 15 bytes
    ///     (pthread_setname_np(3)).
    /// - Throws: What pthread_create(3) does: `Errno.resourceTemporarilyUnavailable` when there are too
    ///   many threads.
    public init(name: String) throws(Errno) {
        let keepAlive = RunLoop.Source {}
        let ready = OneShot<RunLoop>()
        self.name = name
        self.keepAlive = keepAlive
        thread = try JoinableThread(name: name) {
            let loop = RunLoop.current
            loop.add(keepAlive, forMode: .default)
            ready.set(loop)
            while !loop.inbox.isEndRequested { loop.run(in: .default) }
            keepAlive.invalidate()
        }
        runLoop = ready.wait()
    }

    /// Ends the loop after the callback under way, and waits until the thread has ended.
    ///
    /// Blocks that were posted before run first; what is still scheduled is released. Further calls, also by several threads
    /// at once, wait as well. Called on the thread itself it does not wait: the thread ends when the callback returns.
    public func stop() {
        runLoop.perform { [runLoop] in runLoop.inbox.stopOutermost() }
        if !runLoop.isCurrent { thread.join() }
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
            let started = try RunLoopThread(name: name)
            thread = started
            return started.runLoop
        }
    }
}
