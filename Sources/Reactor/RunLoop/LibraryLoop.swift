import CReactorLinux
import Synchronization

/// A second loop on a test's thread, which does what the library's own threads do otherwise. It never sleeps: the test's loop
/// lets it serve what is ready before it waits itself, in whatever mode that runs.
package final class LibraryLoop: Sendable {
    package let runLoop = RunLoop()
    private let testLoop: RunLoop
    /// Keeps the mode from being empty.
    private let keepAlive = RunLoop.Source {}
    /// This loop's last poll, saved while it is not current.
    private let lastPoll: Atomic<UInt64>

    /// Creates one beside the calling thread's loop.
    package init() {
        testLoop = .ofCallingThread
        lastPoll = Atomic(runLoop.identity.number << 32)
        asCurrent {
            runLoop.core.adopt(runLoop)
            runLoop.add(keepAlive, forMode: .default)
        }
    }

    /// Whether the calling thread is the one of both loops.
    package var isOnThread: Bool { runLoop.identity.isCurrent || testLoop.isCurrent }

    /// Calls `body` as code of this loop.
    package func asCurrent<Result>(_ body: () throws -> Result) rethrows -> Result {
        if runLoop.identity.isCurrent { return try body() }
        require(testLoop.isCurrent, "A World must be used on the thread that called withSimulation.")
        let poll = reactor_last_poll()
        unsafe reactor_set_current_loop(runLoop.identity.number, CallbackContext.address(of: runLoop))
        reactor_set_last_poll(lastPoll.load(ordering: .relaxed))
        defer {
            lastPoll.store(reactor_last_poll(), ordering: .relaxed)
            unsafe reactor_set_current_loop(testLoop.identity.number, CallbackContext.address(of: testLoop))
            reactor_set_last_poll(poll)
        }
        return try body()
    }

    /// Serves the first thing that is ready, the timers that are due and what was posted. Returns whether there was anything.
    package func serve() -> Bool {
        asCurrent {
            let (count, hasPosts) = (runLoop.timersAndBlocksCalled, runLoop.inbox.hasSomething)
            let result = runLoop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true)
            return hasPosts || result == .handledSource || runLoop.timersAndBlocksCalled > count
        }
    }

    /// The date of the first timer; ``Deadline/distantFuture`` without one.
    package var nextDate: Deadline {
        asCurrent { runLoop.core.firstDate(runLoop.core.running(.default)) }
    }

    /// Releases everything that was added to the loop.
    package func end() {
        asCurrent {
            _ = runLoop.core.end { true }
            runLoop.inbox.meter.end()
        }
    }
}
