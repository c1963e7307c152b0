import Synchronization
import SystemPackage

/// The loop on which sockets are connected, timed and seen off, whichever loop their streams are on, or none.
///
/// One thread for the whole process, started when it is first needed.
enum SocketThread {
    private static let thread = Mutex<RunLoopThread?>(nil)

    /// - Throws: What pthread_create(3) does; a later call tries again.
    static func loop() throws(Errno) -> RunLoop {
        try thread.withLock { thread throws(Errno) in
            if let thread { return thread.runLoop }
            let new = try RunLoopThread(name: "sockets")
            thread = new
            return new.runLoop
        }
    }
}
