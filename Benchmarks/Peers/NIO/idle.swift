// idle-nio [SECONDS]  One scheduled task.

import NIOCore
import NIOPosix
import Workloads

@main
enum Peer {
    static func main() throws { try run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() throws {
        let wait = Int64(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try group.next().scheduleTask(in: .milliseconds(wait)) {}.futureResult.wait()
        try group.syncShutdownGracefully()
    }
}
