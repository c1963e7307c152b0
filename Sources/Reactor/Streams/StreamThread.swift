import Synchronization
import SystemPackage

/// The loop on which sockets are connected, timed and seen off, whichever loop their streams are on, or none; and which
/// waits for streams whose events go to a queue. No client's code runs on it.
///
/// One thread for the whole process, started when it is first needed.
enum StreamThread {
    private static let thread = Mutex<RunLoopThread?>(nil)

    /// - Throws: What pthread_create(3) does; a later call tries again.
    static func loop() throws(Errno) -> RunLoop {
        try thread.withLock { thread throws(Errno) in
            if let thread { return thread.runLoop }
            let new = try RunLoopThread(name: "streams")
            thread = new
            return new.runLoop
        }
    }
}
