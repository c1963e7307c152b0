// idle-foundation [SECONDS]  One timer, and the end.

import Foundation
import Workloads

@main
enum Peer {
    static func main() {
        let seconds = Double(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv)) / 1000
        _ = Timer.scheduledTimer(withTimeInterval: seconds, repeats: false) { _ in exit(0) }
        RunLoop.main.run()
    }
}
