// idle-nio [SECONDS]  One scheduled task, and the end.

import NIOCore
import NIOPosix
import Workloads

@main
enum Peer {
    static func main() throws { try run() }

    /// Not in `main`, whose closures would be the main actor's.
    static func run() throws {
        let wait = Int64(idle_milliseconds(CommandLine.argc, CommandLine.unsafeArgv))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try group.next().scheduleTask(in: .milliseconds(wait)) {}.futureResult.wait()
        try group.syncShutdownGracefully()
    }
}
