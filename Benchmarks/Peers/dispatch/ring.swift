// Dispatch's read sources, on one serial queue.

import Dispatch
import Glibc
import Workloads

@main
enum Peer {
    static let queue = DispatchQueue(label: "ring")
    /// The main thread alone touches it.
    nonisolated(unsafe) static var sources: [any DispatchSourceRead] = []

    static func main() { run() }

    /// Not in `main`, whose closures would be the main actor's.
    static func run() {
        var peer = ring_peer(
            prepare: { Peer.sources.reserveCapacity($0) },
            watch: { index, descriptor in
                let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: Peer.queue)
                source.setEventHandler { ring_ready(index) }
                source.activate()
                Peer.sources.append(source)
            },
            run: { while true { sleep(1000) } }  // not dispatchMain(), which valgrind does not survive
        )
        exit(run_ring(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
