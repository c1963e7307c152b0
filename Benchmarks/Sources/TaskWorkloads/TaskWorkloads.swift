import Glibc
import Measuring

/// Does the workload of `arguments` with actors on two executors, and prints the columns:
///
/// hop N     N round trips between an actor of `here` and one of `there`: cpu-ns/trip ns/trip
/// actors N  N messages to 1,000 actors of `there`, of a task group of `here`: cpu-ns/message ns/message
public func runTasks(
    _ arguments: [String], here: any SerialExecutor, there: any SerialExecutor
) async -> Never {
    let count = Int(arguments[2])!
    let sender = Partner(on: here)
    if arguments[1] == "hop" {
        let receiver = Partner(on: there)
        await sender.trip(to: receiver, rounds: 1000)
        await measured(count, sender) { await sender.trip(to: receiver, rounds: count) }
    } else {
        let receivers = (0..<1000).map { _ in Partner(on: there) }
        await sender.send(to: receivers)
        await measured(count, sender) {
            for _ in 0..<count / receivers.count { await sender.send(to: receivers) }
        }
    }
    fatalError("not measured")
}

private func measured(_ count: Int, _ sender: Partner, _ work: () async -> Void) async {
    let (wall, processor) = (now(), processorTime())
    await work()
    let touches = await sender.touch()
    precondition(touches != 0)
    report([processorTime() - processor, now() - wall].map { fixed(Double($0) / Double(count)) })
}

/// An actor of a loop.
actor Partner {
    private let executor: any SerialExecutor
    private var touches = 0
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(on executor: any SerialExecutor) { self.executor = executor }

    /// Not inlined, because the compiler leaves out the hop to a trivial method.
    @inline(never)
    func touch() -> Int {
        touches += 1
        return touches
    }

    func trip(to other: Partner, rounds: Int) async {
        for _ in 0..<rounds { touches &+= await other.touch() }
    }

    func send(to others: [Partner]) async {
        await withDiscardingTaskGroup { group in
            for other in others { group.addTask { await check(other.touch()) } }
        }
    }
}

/// Uses the number, so that the compiler cannot leave out the call that returns it.
@inline(never)
private func check(_ number: Int) { precondition(number > 0) }
