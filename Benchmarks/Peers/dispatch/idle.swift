// idle-dispatch [SECONDS]  One block with a delay.

import Dispatch
import Glibc
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let wait = Int(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv))
        DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(wait)) { exit(0) }
        dispatchMain()
    }
}
