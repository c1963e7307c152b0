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
