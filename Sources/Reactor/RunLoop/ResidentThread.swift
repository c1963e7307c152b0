package import SystemPackage

/// A thread that runs its loop from when it is first asked for to the program's end.
package final class ResidentThread: Sendable {
    private let name: String
    private let thread = Mutex<RunLoopThread?>(nil)

    package init(name: String) { self.name = name }

    /// The thread's loop; the first call starts the thread.
    ///
    /// - Throws: What pthread_create(3) does; the next call tries again.
    package func runLoop() throws(Errno) -> RunLoop {
        try thread.withLock { [name] thread throws(Errno) in
            // In a child of fork(2) there is no such thread any more, only what it has left.
            if let thread, !thread.runLoop.inbox.isOfParent { return thread.runLoop }
            let started = try RunLoopThread(name: name)
            thread = started
            return started.runLoop
        }
    }
}
