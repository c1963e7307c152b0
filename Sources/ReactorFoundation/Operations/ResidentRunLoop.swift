import Reactor

/// The loop of the thread that operations share which name no other.
enum ResidentRunLoop {
    private static let thread = Mutex<RunLoopThread?>(nil)

    /// The thread's loop; the first call starts the thread.
    ///
    /// - Throws: What pthread_create(3) does; the next call tries again.
    static func get() throws(Errno) -> RunLoop {
        try thread.withLock { thread throws(Errno) in
            if let thread { return thread.runLoop }
            let started = try RunLoopThread(name: "operations")
            thread = started
            return started.runLoop
        }
    }
}
