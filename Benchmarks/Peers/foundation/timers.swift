// Foundation's timers with fire dates, because Timer(timeInterval:) fires at once on Linux. CFRunLoopStop stops the loop,
// because a timer does not end run(mode:before:) and RunLoop has no stop().

import CoreFoundation
import Foundation
import Workloads

/// Used only on the main thread.
@main
enum Peer {
    nonisolated(unsafe) static var timers: [Timer] = []
    nonisolated(unsafe) static var isOver = false

    static func add(_ index: Int, _ delay: Int64, repeats: Bool) {
        let delay = Double(delay) / 1e9
        let date = Date(timeIntervalSinceNow: delay)
        let timer = Timer(fire: date, interval: repeats ? delay : 0, repeats: repeats) { _ in
            timer_fired(index)
        }
        RunLoop.current.add(timer, forMode: .default)
        timers.append(timer)
    }

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        var peer = timer_peer(
            prepare: { Peer.timers.reserveCapacity($0) },
            add: { Peer.add($0, $1, repeats: false) },
            add_repeating: { Peer.add($0, Int64(timer_period), repeats: true) },
            cancel: { Peer.timers[$0].invalidate() },
            run: { while !Peer.isOver, RunLoop.current.run(mode: .default, before: .distantFuture) {} },
            stop: {
                Peer.isOver = true
                CFRunLoopStop(CFRunLoopGetCurrent())
            },
            within: nil
        )
        exit(run_timers(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
