// Dispatch's timer sources, strict and without leeway, on one serial queue. Cancelling is asynchronous.

import Dispatch
import Glibc
import Workloads

@main
enum Peer {
    static let queue = DispatchQueue(label: "timers")
    static let done = DispatchSemaphore(value: 0)
    /// Used only on the thread that adds and cancels.
    nonisolated(unsafe) static var sources: [any DispatchSourceTimer] = []

    static func add(_ index: Int, _ delay: Int64, repeating: DispatchTimeInterval) {
        let source = DispatchSource.makeTimerSource(flags: .strict, queue: queue)
        source.schedule(
            deadline: .now() + .nanoseconds(Int(delay)), repeating: repeating, leeway: .nanoseconds(0))
        source.setEventHandler { timer_fired(index) }
        source.activate()
        sources.append(source)
    }

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        var peer = timer_peer(
            prepare: { Peer.sources.reserveCapacity($0) },
            add: { Peer.add($0, $1, repeating: .never) },
            add_repeating: { Peer.add($0, Int64(timer_period), repeating: .nanoseconds(Int(timer_period))) },
            cancel: { Peer.sources[$0].cancel() },
            run: { Peer.done.wait() },
            stop: {
                Peer.queue.suspend()  // no handler runs while the numbers are read
                Peer.done.signal()
            },
            within: nil
        )
        exit(run_timers(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
