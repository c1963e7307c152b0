import Dispatch
import Reactor

/// The threads of Dispatch's queues, which operation queues use too.
package enum Workers {
    /// Fails if Dispatch cannot start threads, or if the program would run out of descriptors later.
    ///
    /// Dispatch ends the process without a sentence when there are no descriptors, also in the middle of its work, and
    /// waits without end if there is no memory for a thread. Call this before the first use of a queue.
    ///
    /// - Parameter descriptorCount: How many descriptors the program opens at the same time.
    package static func prepare(descriptorCount: Int) throws(Unavailable) {
        do {
            try DescriptorLimit.raise()
            try DescriptorLimit.require(ownDescriptorCount + descriptorCount)
            try checkThreads()
        } catch { throw Unavailable(cause: error) }
    }

    package struct Unavailable: Error, CustomStringConvertible {
        let cause: any Error

        package var description: String {
            "Cannot start threads: \(cause). Raise the limits of open files (ulimit -n) and memory (ulimit -d, -v)."
        }
    }

    /// Of Dispatch: epoll(7), eventfd(2), two of timerfd_create(2), and a file of /proc now and then; of the main
    /// loop, and of the signals, as many again.
    private static let ownDescriptorCount = 12
    /// Dispatch's manager, a worker for each of two queues, and the thread that serves signals.
    private static let threadCount = 4

    private static func checkThreads() throws {
        var threads: [RunLoopThread] = []
        defer { for thread in threads { thread.stop() } }
        for number in 0..<threadCount { threads.append(try RunLoopThread(name: "probe \(number)")) }
    }
}
