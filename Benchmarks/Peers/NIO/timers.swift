// SwiftNIO's scheduled tasks, added and cancelled on their event loop.

import Dispatch
import Glibc
import NIOCore
import NIOPosix
import Workloads

@main
enum Peer {
    static let loop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
    static let done = DispatchSemaphore(value: 0)
    /// Used only on the loop's thread while the main thread waits.
    nonisolated(unsafe) static var tasks: [Scheduled<Void>] = []
    nonisolated(unsafe) static var isOver = false

    static func fired(_ index: Int) {
        if !isOver { timer_fired(index) }
    }

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        var peer = timer_peer(
            prepare: { Peer.tasks.reserveCapacity($0) },
            add: { index, delay in
                Peer.tasks.append(Peer.loop.scheduleTask(in: .nanoseconds(delay)) { Peer.fired(index) })
            },
            add_repeating: { index in
                let period = TimeAmount.nanoseconds(Int64(timer_period))
                Peer.loop.scheduleRepeatedTask(initialDelay: period, delay: period) { _ in Peer.fired(index) }
            },
            cancel: { Peer.tasks[$0].cancel() },
            run: { Peer.done.wait() },
            stop: {
                Peer.isOver = true
                Peer.done.signal()
            },
            within: { body in try! Peer.loop.submit { body!() }.wait() }
        )
        let status = run_timers(&peer, CommandLine.argc, CommandLine.unsafeArgv)
        fflush(nil)
        _exit(status)
    }
}
