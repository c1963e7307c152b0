import CReactorLinux
import Dispatch
import SystemPackage

/// libdispatch's worker threads, which must not be the first to find that the process has no descriptors or threads left.
///
/// With its first worker libdispatch makes an epoll, an eventfd and a timerfd for itself, and ends the process where it
/// cannot. Where it cannot make a thread, it blocks the caller until it can.
enum DispatchWorkers {
    private static let arePrepared = Flag()
    private static let preparing = Mutex(())

    /// Makes sure that libdispatch has what its workers take.
    ///
    /// - Throws: `Errno.tooManyOpenFiles` and its like, or `Errno.resourceTemporarilyUnavailable` if no threads can be
    ///   made; a later call tries again.
    static func prepare() throws(Errno) {
        if arePrepared.isRaised { return }
        try preparing.withLock { _ throws(Errno) in
            if arePrepared.isRaised { return }
            try SystemCall.make { reactor_descriptors_for_dispatch() }
            try makeThreads()
            awaitTimer()
            arePrepared.raise()
        }
    }

    /// Makes two threads, which exist at the same time, and ends them: a timer takes a manager and a worker.
    private static func makeThreads() throws(Errno) {
        let isOver = DispatchSemaphore(value: 0)
        let manager = try JoinableThread(name: "probe") { isOver.wait() }
        defer {
            isOver.signal()
            manager.join()
        }
        try JoinableThread(name: "probe") {}.join()
    }

    /// Runs `work` on `queue`; or, where there are no descriptors for that, on a thread of its own, which takes none.
    static func run(
        on queue: DispatchQueue = .global(qos: .userInitiated), _ work: @escaping @Sendable () -> Void
    ) {
        do throws(Errno) { try prepare() } catch {
            if (try? JoinableThread(name: "work", work)) != nil { return }
        }
        queue.async(execute: work)
    }

    /// A timer takes all of libdispatch: once it has fired, nothing is left to be made. A queue of its own gets a thread
    /// even if blocks that wait have taken all those of the global queues.
    private static func awaitTimer() {
        let hasFired = DispatchSemaphore(value: 0)
        let timer = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "prepare"))
        timer.setEventHandler { hasFired.signal() }
        timer.schedule(deadline: .now())
        timer.activate()
        hasFired.wait()
        timer.cancel()
    }
}
