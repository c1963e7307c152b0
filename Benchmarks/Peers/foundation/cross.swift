// RunLoop.perform, which does not wake the loop on Linux: CFRunLoopWakeUp does. A far timer keeps the loop.

import CoreFoundation
import Foundation
import Workloads

/// What its thread sets before the workload waits for it, and both only read afterwards.
final class Loop: @unchecked Sendable {
    private let isThere = DispatchSemaphore(value: 0)
    private var runLoop: RunLoop!
    private var wakeUp: CFRunLoop!

    init() {
        Thread.detachNewThread { [self] in
            runLoop = .current
            wakeUp = CFRunLoopGetCurrent()
            let far = Timer(fire: .distantFuture, interval: 0, repeats: false) { _ in }
            RunLoop.current.add(far, forMode: .default)
            isThere.signal()
            while true { _ = RunLoop.current.run(mode: .default, before: .distantFuture) }
        }
        isThere.wait()
    }

    func post(_ function: @escaping posted_function, _ argument: Argument) {
        runLoop.perform { function(argument.pointer) }
        CFRunLoopWakeUp(wakeUp)
    }
}

/// What the workload hands over: it touches it on one loop at a time.
struct Argument: @unchecked Sendable {
    let pointer: UnsafeMutableRawPointer?
}

@main
enum Peer {
    static func main() { run() }

    /// Not in `main`, whose closures would be the main actor's.
    static func run() {
        var peer = cross_peer(
            make: { Unmanaged.passRetained(Loop()).toOpaque() },
            run: { _ in while true { sleep(1000) } },
            post: { loop, function, argument in
                Unmanaged<Loop>.fromOpaque(loop!).takeUnretainedValue().post(
                    function!, Argument(pointer: argument))
            }
        )
        exit(run_cross(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
