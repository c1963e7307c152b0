import Synchronization

/// A job of Swift Concurrency that waits in a queue. The queue runs through the jobs themselves, so waiting
/// allocates nothing.
///
/// The runtime reserves two words of every job for the executor that the job is given to, after the two words
/// of the object's header (`SchedulerPrivate` in swift/ABI/Task.h). The runtime's own executors keep their
/// links there, and it gives a job to one executor at a time. So `@safe` is right: from its enqueueing to its run
/// a job is allocated, and only the executor's queue touches these words. A ``JobStack`` publishes them with
/// the job's address.
@safe
struct QueuedJob {
    /// Which of an executor's two roles runs the job.
    enum Role: UInt { case serial, task }

    fileprivate let address: UInt

    fileprivate init(address: UInt) { self.address = address }

    init(_ job: consuming ExecutorJob, for role: Role) {
        address = unsafe unsafeBitCast(UnownedJob(job), to: UInt.self)
        unsafe words[3] = role.rawValue
    }

    /// The address of the job that comes next, or 0.
    fileprivate var next: UInt {
        get { unsafe words[2] }
        nonmutating set { unsafe words[2] = newValue }
    }

    /// Runs the job as `executor`'s. The job is gone after this.
    @inline(__always)
    func run(on executor: RunLoop.Executor) {
        let job = unsafe unsafeBitCast(address, to: UnownedJob.self)
        let serial = unsafe executor.asUnownedSerialExecutor()
        if unsafe words[3] == Role.serial.rawValue {
            unsafe job.runSynchronously(on: serial)
        } else {
            unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: executor.asUnownedTaskExecutor())
        }
    }

    private var words: UnsafeMutablePointer<UInt> {
        unsafe UnsafeMutablePointer(bitPattern: address).unsafelyUnwrapped
    }
}

/// Jobs in the order of their arrival, on one thread.
struct JobQueue {
    private var first: UInt = 0
    private var last: UInt = 0
    private(set) var count = 0

    var isEmpty: Bool { first == 0 }

    mutating func append(_ job: QueuedJob) {
        job.next = 0
        if first == 0 { first = job.address } else { QueuedJob(address: last).next = job.address }
        last = job.address
        count += 1
    }

    /// Appends the jobs of `other`.
    mutating func append(_ other: consuming JobQueue) {
        var other = other
        while let job = other.popFirst() { append(job) }
    }

    mutating func popFirst() -> QueuedJob? {
        guard first != 0 else { return nil }
        let job = QueuedJob(address: first)
        first = job.next
        count -= 1
        return job
    }

    /// Takes all of `stack`, whose jobs come after those that are here.
    mutating func append(_ stack: borrowing JobStack) {
        var job = stack.takeAll()
        // The newest comes first: turn the list round.
        var oldest: UInt = 0
        while job != 0 {
            let older = QueuedJob(address: job).next
            QueuedJob(address: job).next = oldest
            (oldest, job) = (job, older)
        }
        while oldest != 0 {
            let newer = QueuedJob(address: oldest).next
            append(QueuedJob(address: oldest))
            oldest = newer
        }
    }
}

/// Jobs that any thread pushes and the loop's thread takes, all at once.
struct JobStack: ~Copyable, Sendable {
    /// The address of the newest job, which leads to the others; 0 for none.
    private let newest = Atomic<UInt>(0)

    /// Pushes `job`, which may be run at once. Returns whether the stack was empty.
    func push(_ job: QueuedJob) -> Bool {
        var seen = newest.load(ordering: .relaxed)
        while true {
            job.next = seen
            let (isDone, current) = newest.weakCompareExchange(
                expected: seen, desired: job.address, successOrdering: .releasing, failureOrdering: .relaxed)
            if isDone { return seen == 0 }
            seen = current
        }
    }

    var isEmpty: Bool { newest.load(ordering: .relaxed) == 0 }

    fileprivate func takeAll() -> UInt { newest.exchange(0, ordering: .acquiring) }
}
