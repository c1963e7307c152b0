import Glibc
public import SystemPackage

/// A thread that runs its loop in the default mode until it is told to stop, with or without anything to
/// attend to.
///
/// ```swift
/// let network = try RunLoopThread(name: "network")
/// network.runLoop.perform { print("on the thread called network") }
/// network.stop()
/// ```
///
/// All methods may be called from any thread.
public final class RunLoopThread: Sendable {
    /// The thread's loop; runs from before the initialiser returns until ``stop()``.
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
        let ready = Answer<RunLoop>()
        self.name = name
        self.keepAlive = keepAlive
        thread = try JoinableThread(name: name) {
            let loop = RunLoop.current
            loop.add(keepAlive, forMode: .default)
            ready.give(loop)
            while !loop.inbox.isEndRequested { loop.run(in: .default) }
            keepAlive.invalidate()
        }
        runLoop = ready.wait()
    }

    /// Ends the loop after the callout under way, and waits until the thread has ended.
    ///
    /// Blocks that were posted before run first; what is still scheduled is let go of. Called again, or by
    /// several threads at once, it waits as well. Called on the thread itself it does not wait: the thread
    /// ends when the callout returns.
    public func stop() {
        runLoop.perform { [runLoop] in runLoop.inbox.stopOutermost() }
        if !runLoop.isCurrent { thread.join() }
    }
}
