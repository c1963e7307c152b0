import Reactor

/// A thread that runs its loop from when it is first asked for to the program's end.
final class ResidentThread: Sendable {
    /// What operations share that name no other loop.
    static let operations = ResidentThread(name: "operations")
    /// What serves the sockets of ports. It calls no delegates.
    static let ports = ResidentThread(name: "ports")

    private let name: String
    private let thread = Mutex<RunLoopThread?>(nil)

    private init(name: String) { self.name = name }

    /// The thread's loop; the first call starts the thread.
    ///
    /// - Throws: What pthread_create(3) does; the next call tries again.
    func runLoop() throws(Errno) -> RunLoop {
        try thread.withLock { [name] thread throws(Errno) in
            if let thread { return thread.runLoop }
            let started = try RunLoopThread(name: name)
            thread = started
            return started.runLoop
        }
    }
}
