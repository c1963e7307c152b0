// idle-foundation [SECONDS]  One timer, and the end.

import Foundation
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Not in `main`, whose closures would be the main actor's.
    static func run() {
        let seconds = Double(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv)) / 1000
        _ = Timer.scheduledTimer(withTimeInterval: seconds, repeats: false) { _ in exit(0) }
        RunLoop.main.run()
    }
}
