import CReactorLinux
// libdispatch is linked for the main queue's hooks.
import Dispatch
import Glibc
import SystemPackage

/// Drains libdispatch's main queue, and so runs `@MainActor` code.
///
/// libdispatch signals work with an eventfd, which is served like any descriptor in the common modes: once in a pass, and
/// not while the queue is being drained further up the stack. A drain runs what the queue holds when it begins.
final class MainQueueSource: EventSource {
    fileprivate init(handle: CInt) { super.init(handle, for: .readable) }

    /// Becomes ready if libdispatch has signalled work, while the kernel refuses to watch the descriptor.
    fileprivate func poll() {
        if (try? SystemCall.poll(number, for: CInt(POLLIN))) ?? 0 != 0 { markReady() }
    }

    override func serve(_ readiness: Readiness) -> Bool {
        // A counter: unread, it would stay readable.
        _ = takeCount(ofEventCounter: number)
        _dispatch_main_queue_callback_4CF(nil)
        return true
    }

    override var subject: String { "main queue" }

    override var noun: String { subject }

    override var dumpLine: String { title }

    override var callTitle: String { "block of the main queue or job of the main actor" }
}

/// The descriptor that libdispatch makes readable when its main queue gets work. The first call creates it.
package func mainQueueHandle() throws(Errno) -> CInt {
    // libdispatch ends the process if it gets no descriptor.
    try OwnedDescriptor.require(1)
    return DispatchWorkers.explainingTraps { _dispatch_get_main_queue_handle_4CF() }
}

extension RunLoop.Core {
    /// Drains libdispatch's main queue on the main loop, from its first activation on.
    func serveMainQueue() {
        if let mainQueue {
            lacksMainQueue = !mainQueue.isRegistered
            if lacksMainQueue { mainQueue.poll() }
            return
        }
        let handle: CInt
        do throws(Errno) { handle = try mainQueueHandle() } catch { return reportMissingMainQueue(error) }
        let source = MainQueueSource(handle: handle)
        guard !inbox.isClosed, source.join(loop) else { return }
        source.membership.add(.common, common: commonModes)
        updateLeniently(source)
        if LoopDiagnostics.isReporting { source.superviseReadiness() }
        source.didJoin(.common)
        mainQueue = source
        serveMainQueue()
    }

    /// Says once what may end the process: libdispatch itself does so without a word.
    private func reportMissingMainQueue(_ error: Errno) {
        if !lacksMainQueue {
            SystemCall.writeToStandardError(
                "Reactor: The main queue has no descriptor: \(error). libdispatch ends the process if work is sent there "
                    + "before one is free.\n")
        }
        lacksMainQueue = true
    }
}
