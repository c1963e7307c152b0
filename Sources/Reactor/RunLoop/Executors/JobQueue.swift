/// A job of Swift Concurrency that waits for its executor.
struct QueuedJob: Sendable {
    /// Which of an executor's two roles runs the job.
    enum Role { case serial, task }

    private let job: UnownedJob
    private let role: Role

    init(_ job: consuming ExecutorJob, for role: Role) { (self.job, self.role) = (UnownedJob(job), role) }

    /// Runs the job as `executor`'s. The job is gone after this.
    func run(on executor: RunLoop.Executor) {
        let serial = unsafe executor.asUnownedSerialExecutor()
        switch role {
        case .serial: unsafe job.runSynchronously(on: serial)
        case .task:
            unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: executor.asUnownedTaskExecutor())
        }
    }
}

/// Jobs in the order of their arrival. Once it has been filled it allocates no more.
struct JobQueue {
    private var jobs: [QueuedJob] = []
    /// The index of the next job.
    private var first = 0

    var count: Int { jobs.count - first }
    var isEmpty: Bool { count == 0 }

    mutating func append(_ job: QueuedJob) {
        // Moves no more jobs than have left the queue since the last move.
        if first > 0, first >= count, jobs.count == jobs.capacity {
            jobs.removeFirst(first)
            first = 0
        }
        jobs.append(job)
    }

    /// Takes the jobs of `other`. Where this is empty, it takes the storage and leaves its own.
    mutating func takeAll(of other: inout JobQueue) {
        if isEmpty { return swap(&self, &other) }
        for job in other.jobs[other.first...] { append(job) }
        other.removeAll()
    }

    mutating func popFirst() -> QueuedJob? {
        guard !isEmpty else { return nil }
        defer {
            first += 1
            if isEmpty { removeAll() }
        }
        return jobs[first]
    }

    private mutating func removeAll() {
        jobs.removeAll(keepingCapacity: jobs.capacity <= Self.keptCapacity)
        first = 0
    }

    /// Storage for up to this many jobs, some 64 KB, is kept for reuse; what a burst needed beyond that is freed.
    private static var keptCapacity: Int { 4096 }
}
