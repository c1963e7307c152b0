import CReactorLinux
package import Dispatch
import Glibc
import SystemPackage

/// Ensures that libdispatch can start its worker threads before the library relies on them.
///
/// With its first worker libdispatch makes an epoll, an eventfd and a timerfd, and ends the process if it cannot. If it
/// cannot make a thread, it blocks the caller until it can.
package enum DispatchWorkers {
    private static let arePrepared = Flag()
    private static let preparing = Mutex(())

    /// The descriptors that the library leaves to the rest of the process: it starts no worker without them, and accepts
    /// no connection with them.
    ///
    /// Once a second, while work waits for a worker, libdispatch opens a file of /proc, and ends the process if it
    /// cannot. A resolver and a log need some as well. They may be used between this check and libdispatch's
    /// call: it has no hook that would let the library keep a descriptor for it.
    static let reservedDescriptors = 4

    /// Makes libdispatch create what its workers need.
    ///
    /// - Throws: `Errno.tooManyOpenFiles` and its like, or `Errno.resourceTemporarilyUnavailable` if no threads can be
    ///   made; a later call tries again.
    static func prepare() throws(Errno) {
        if arePrepared.isRaised { return }
        try preparing.withLock { _ throws(Errno) in
            if arePrepared.isRaised { return }
            try makeDescriptors()
            try makeThreads()
            explainingTraps { awaitTimer() }
            arePrepared.raise()
        }
    }

    /// Makes and closes what libdispatch is about to make: the kernel may refuse an epoll, or a watch, though the process may
    /// open descriptors.
    private static func makeDescriptors() throws(Errno) {
        let epoll = try OwnedDescriptor.epoll()
        let counter = try OwnedDescriptor.eventCounter()
        let timer = try OwnedDescriptor.timer()
        for descriptor in [counter.number, timer.number] {
            try SystemCall.control(epoll.number, EPOLL_CTL_ADD, descriptor, for: EPOLLIN.rawValue)
        }
        try OwnedDescriptor.require(reservedDescriptors)
        _ = (epoll.number, counter.number, timer.number)
    }

    private static let explaining = Mutex(())

    /// Calls `body`, in which libdispatch opens its descriptors. If the kernel refuses it one in spite of the check before,
    /// libdispatch ends the process: this says so first.
    package static func explainingTraps<Result: Sendable>(_ body: () -> Result) -> Result {
        explaining.withLock { _ in
            reactor_explain_traps(true)
            defer { reactor_explain_traps(false) }
            return body()
        }
    }

    /// Makes and ends two threads that exist at the same time: a timer needs a manager and a worker.
    private static func makeThreads() throws(Errno) {
        let isOver = DispatchSemaphore(value: 0)
        let manager = try JoinableThread(name: "reactor.probe") { isOver.wait() }
        defer {
            isOver.signal()
            manager.join()
        }
        try JoinableThread(name: "reactor.probe") {}.join()
    }

    /// Runs `work` on `queue`; without descriptors for a worker, a thread of its own enters the queue. If no thread can be made
    /// either, libdispatch blocks the caller until one can.
    package static func run(
        on queue: DispatchQueue = .global(qos: .userInitiated), _ work: @escaping @Sendable () -> Void
    ) {
        let work = noted(work)
        do throws(Errno) { try prepare() } catch {
            if (try? JoinableThread(name: "reactor.work", { queue.sync(execute: work) })) != nil { return }
            SystemCall.writeToStandardError(
                "Reactor: A thread waits for libdispatch, which can make no worker: \(error). It tries again every second.\n"
            )
        }
        queue.async(execute: work)
    }

    /// `work`, with the time of the calling thread if a test has replaced that.
    static func noted(_ work: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        guard let source = currentTimeSource else { return work }
        source.beginWork()
        return {
            // The main thread may have a time of its own, even this one.
            let former = currentTimeSource
            // Without a moment in which no thread has the time: a task elsewhere would read the kernel's.
            guard former !== source else {
                work()
                return source.endWork()
            }
            former?.leaveThread()
            source.enterThread()
            work()
            source.leaveThread()
            former?.enterThread()
            source.endWork()
        }
    }

    /// Suspends the task for `duration`, which a timer of libdispatch ends.
    ///
    /// - Throws: `Errno.canceled`; as ``prepare()``.
    nonisolated(nonsending) static func sleep(for duration: Duration) async throws(Errno) {
        try prepare()
        let source = currentTimeSource
        source?.beginWork()
        defer { source?.endWork() }
        do { try await Task.sleep(for: duration) } catch { throw .canceled }
    }

    /// A timer makes libdispatch create all of its descriptors and threads. A queue of its own gets a thread even if blocked
    /// work items occupy those of the global queues.
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
