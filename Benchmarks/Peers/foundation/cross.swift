// RunLoop.perform and CFRunLoopWakeUp, because perform does not wake the loop on Linux. A timer keeps the loop running.

import CoreFoundation
import Foundation
import Workloads

/// A thread's run loop. `@unchecked Sendable` is correct: the thread sets the properties before `init` returns, and they
/// do not change afterwards.
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
                Unmanaged<Loop>.fromOpaque(loop!).takeUnretainedValue().post(
                    function!, Argument(pointer: argument))
            }
        )
        exit(run_cross(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
