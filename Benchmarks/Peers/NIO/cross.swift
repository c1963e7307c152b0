// SwiftNIO's EventLoop.execute.

import Glibc
import NIOCore
import NIOPosix
import Workloads

final class Loop: Sendable {
    let eventLoop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
}

/// The workload's argument. `@unchecked Sendable` is correct: the workload uses it on one loop at a time.
struct Argument: @unchecked Sendable {
    let pointer: UnsafeMutableRawPointer?
}

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        var peer = cross_peer(
            make: { Unmanaged.passRetained(Loop()).toOpaque() },
            run: { _ in while true { sleep(1000) } },
            post: { loop, function, argument in
                let argument = Argument(pointer: argument)
                Unmanaged<Loop>.fromOpaque(loop!).takeUnretainedValue().eventLoop.execute {
                    function!(argument.pointer)
                }
            }
        )
        exit(run_cross(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
