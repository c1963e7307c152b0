// Serial queues in place of loops.

import Dispatch
import TaskWorkloads

/// Runs jobs on a queue.
final class QueueExecutor: SerialExecutor {
    private let queue: DispatchQueue

    init(label: String) { queue = DispatchQueue(label: label) }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }
}

@main
enum Peer {
    static func main() async {
        await runTasks(
            CommandLine.arguments, here: QueueExecutor(label: "here"), there: QueueExecutor(label: "there"))
    }
}
