// A serial queue in place of a loop.

import Dispatch
import Glibc
import Workloads

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
            make: { Unmanaged.passRetained(DispatchQueue(label: "loop")).toOpaque() },
            run: { _ in while true { sleep(1000) } },
            post: { queue, function, argument in
                let argument = Argument(pointer: argument)
                Unmanaged<DispatchQueue>.fromOpaque(queue!).takeUnretainedValue().async {
                    function!(argument.pointer)
                }
            }
        )
        exit(run_cross(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
