import CReactorLinux
import Glibc
import Reactor

/// Finds out whether a task of a test runs or is queued anywhere in the process, while the test's loops wait.
///
/// If all threads sleep, and none has run since an earlier look, no task runs, and none is queued: it would have woken a thread
/// of the concurrency pool. The exception is a pool whose threads are all blocked; ``PoolProbe`` reports that one is free.
struct TaskWatch {
    /// How long to wait for threads that keep running, in microseconds: several steps of a task on a busy machine. They may be
    /// other tests', or never sleep.
    private static let runningPeriod = 40_000
    /// When no task was running or queued last.
    private static let rest = Mutex(Rest())

    private struct Rest {
        var time = Int64.min
        /// While no thread has run since, no task is queued.
        var activity = TaskThreads.Activity.unknown
    }

    private let threads: TaskThreads
    private let start = reactor_kernel_nanoseconds(CLOCK_MONOTONIC)
    private var probe: PoolProbe?

    init(_ threads: TaskThreads) { self.threads = threads }

    /// Whether no task runs or is queued, or tasks have had their time, when this has been asked for `waited` microseconds.
    mutating func isOver(after waited: Int) -> Bool {
        // Another test has found the same threads asleep meanwhile: what runs now is that test's.
        if threads.areShared, Self.rest.withLock({ $0.time > start }) { return true }
        if let probe, !probe.hasPassed { return false }
        let activity = threads.activity
        let isLate = waited >= (activity == .unknown ? TimeDomain.quietPeriod : Self.runningPeriod)
        if probe == nil {
            if activity.isAsleep, activity == Self.rest.withLock({ $0.activity }) { return true }
            if isLate || activity.isAsleep { probe = .beginIfAlone() }
            return false
        }
        if isLate { return true }
        // What has run since the last look may have queued a task.
        defer { probe = nil }
        let time = reactor_kernel_nanoseconds(CLOCK_MONOTONIC)
        guard activity.isAsleep, activity == threads.activity else { return false }
        if threads.areShared { Self.rest.withLock { $0 = Rest(time: time, activity: activity) } }
        return true
    }
}

/// The threads of the process on which tasks of a test may run: all but the calling one, and those of other tests.
struct TaskThreads {
    /// The state of the threads.
    enum Activity: Equatable {
        /// At least one runs, or waits for a processor.
        case running
        /// All sleep, and have slept so often, by number.
        case asleep([pid_t: Int64])
        /// The kernel does not say.
        case unknown

        var isAsleep: Bool { if case .asleep = self { true } else { false } }
    }

    private static let testThreads = Mutex<Set<pid_t>>([])

    /// The thread of the test, which is another one than its loop's if the test is isolated to an actor; 0 for none.
    private let ownThread: pid_t

    init(ofTestOn ownThread: pid_t) { self.ownThread = ownThread }

    /// The calling thread runs tasks of one test only, until ``testThreadEnds()``.
    static func testThreadBegins() { _ = testThreads.withLock { $0.insert(reactor_thread_number()) } }

    static func testThreadEnds() { _ = testThreads.withLock { $0.remove(reactor_thread_number()) } }

    /// Whether these are the threads that belong to no test.
    var areShared: Bool { ownThread == reactor_thread_number() }

    /// The present state of the threads.
    var activity: Activity {
        guard let folder = unsafe opendir("/proc/self/task") else { return .unknown }
        defer { unsafe closedir(folder) }
        var ignored = Self.testThreads.withLock { $0 }
        ignored.remove(ownThread)
        ignored.insert(reactor_thread_number())
        var counts: [pid_t: Int64] = [:]
        while let entry = unsafe readdir(folder) {
            // 0 for the folder itself and the one around it.
            let number = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { name in
                unsafe name.prefix { $0 >= 48 && $0 <= 57 }.reduce(0) { $0 * 10 + pid_t($1 - 48) }
            }
            if number == 0 || ignored.contains(number) { continue }
            let count = reactor_sleep_count(number)
            if count == 0 { return .running }
            if count < 0 { return .unknown }
            counts[number] = count
        }
        return .asleep(counts)
    }
}
