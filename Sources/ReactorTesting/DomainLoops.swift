import Reactor

/// The loops of the threads that share a virtual time: those that wait, and the busy ones.
struct DomainLoops {
    struct Waiting: Sendable {
        let loop: RunLoop
        let wait: LoopWait
        let date: Int64
    }

    private(set) var waiting: [ObjectIdentifier: Waiting] = [:]
    /// All others: they have not waited yet, or their waits are over, or end because their dates have come.
    private var busy: Set<ObjectIdentifier> = []
    /// How many waits have begun. The last one decides what happens.
    private(set) var waitCount = 0

    /// A wait begins. Returns its number.
    mutating func begin(_ wait: Waiting) -> Int {
        let key = ObjectIdentifier(wait.loop)
        busy.remove(key)
        waiting[key] = wait
        waitCount += 1
        return waitCount
    }

    mutating func setBusy(_ loop: ObjectIdentifier) {
        waiting[loop] = nil
        busy.insert(loop)
    }

    mutating func remove(_ loop: ObjectIdentifier) {
        waiting[loop] = nil
        busy.remove(loop)
    }

    func isBusy(_ loop: RunLoop) -> Bool { busy.contains(ObjectIdentifier(loop)) }

    /// Whether all loops but `current` wait, and no thread has woken one.
    func isWaiting(besides current: RunLoop? = nil) -> Bool {
        busy.allSatisfy { $0 == current.map(ObjectIdentifier.init) }
            && waiting.values.allSatisfy { $0.loop.isAsleep }
    }

    /// The first date that a loop waits for; `.max` for none.
    var nextDate: Int64 { waiting.values.reduce(.max) { min($0, $1.date) } }

    /// Ends the waits whose dates have come by `now`. That of `current`, the calling thread's, has not begun in the kernel.
    mutating func endWaits(by now: Int64, of current: RunLoop?) {
        for (key, waiting) in waiting where waiting.date <= now {
            setBusy(key)
            if waiting.loop !== current { waiting.wait.end() }
        }
    }
}
