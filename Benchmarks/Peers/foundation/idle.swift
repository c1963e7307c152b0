// idle-foundation [SECONDS]  One timer.

import Foundation
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let seconds = Double(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv)) / 1000
        _ = Timer.scheduledTimer(withTimeInterval: seconds, repeats: false) { _ in exit(0) }
        RunLoop.main.run()
    }
}
