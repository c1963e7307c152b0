// SwiftNIO's event loops as executors.

import NIOCore
import NIOPosix
import TaskWorkloads

@main
enum Peer {
    static func main() async {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        await runTasks(CommandLine.arguments, here: group.next().executor, there: group.next().executor)
    }
}
