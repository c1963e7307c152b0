// modes-foundation N W  Enters another mode from a callback and leaves it, W times, with N timers in the default mode.
//                       Foundation's loop has no other items: cpu-ns/entry ns/entry

import Foundation
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let (count, entries) = (Int(CommandLine.arguments[1])!, Int(CommandLine.arguments[2])!)
        let dialog = RunLoop.Mode("dialog")
        for _ in 0..<count { RunLoop.current.add(far(), forMode: .default) }
        RunLoop.current.add(far(), forMode: dialog)  // the loop does not run in an empty mode
        _ = Timer.scheduledTimer(withTimeInterval: 0.01, repeats: false) { _ in
            enter(dialog, 100)
            let (wall, processor) = (monotonic_ns(), processor_ns())
            enter(dialog, entries)
            let (time, cost) = (monotonic_ns() - wall, processor_ns() - processor)
            print(Double(cost) / Double(entries), Double(time) / Double(entries))
            exit(0)
        }
        RunLoop.current.run()
    }

    private static func far() -> Timer {
        Timer(fire: Date(timeIntervalSinceNow: 1000), interval: 0, repeats: false) { _ in }
    }

    private static func enter(_ mode: RunLoop.Mode, _ count: Int) {
        for _ in 0..<count { _ = RunLoop.current.run(mode: mode, before: .distantPast) }
    }
}
