// Dispatch's read sources, on one serial queue.

import Dispatch
import Glibc
import Workloads

@main
enum Peer {
    static let queue = DispatchQueue(label: "ring")
    /// Used only on the main thread.
    nonisolated(unsafe) static var sources: [any DispatchSourceRead] = []

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        var peer = ring_peer(
            prepare: { Peer.sources.reserveCapacity($0) },
            watch: { index, descriptor in
                let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: Peer.queue)
                source.setEventHandler { ring_ready(index) }
                source.activate()
                Peer.sources.append(source)
            },
            run: { while true { sleep(1000) } }  // valgrind fails in dispatchMain()
        )
        exit(run_ring(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
