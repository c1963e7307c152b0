import Dispatch
import Reactor

// Runs many jobs on a queue, at most four at a time, and receives their results on the loop. A result starts the next job,
// so neither jobs nor results pile up.
var limits = Array(stride(from: 100_000, through: 2_000_000, by: 100_000))[...]
var running = 0
let queue = DispatchQueue(label: "jobs", attributes: .concurrent)

let results = Mailbox<(limit: Int, count: Int)>(label: "results") { _, result in
    print("\(result.count) primes up to \(result.limit)")
    running -= 1
    startJobs()
    if running == 0 { RunLoop.current.stop() }
}

@MainActor func startJobs() {
    while running < 4, let limit = limits.popFirst() {
        running += 1
        queue.async { results.post((limit, primeCount(upTo: limit))) }
    }
}

nonisolated func primeCount(upTo limit: Int) -> Int {
    var isComposite = [Bool](repeating: false, count: limit + 1)
    for factor in 2...limit where !isComposite[factor] {
        for multiple in stride(from: factor * factor, through: limit, by: factor) {
            isComposite[multiple] = true
        }
    }
    return isComposite.dropFirst(2).count { !$0 }
}

startJobs()
RunLoop.current.run(in: .default)
