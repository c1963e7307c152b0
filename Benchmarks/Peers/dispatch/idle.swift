// idle-dispatch [SECONDS]  One block with a delay, and the end.

import Dispatch
import Glibc
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Not in `main`, whose closures would be the main actor's.
    static func run() {
        let wait = Int(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv))
        DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(wait)) { exit(0) }
        dispatchMain()
    }
}
