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

/// Whether the main loop drains libdispatch's main queue.
enum MainQueueService {
    case none
    /// It is to, but there was no descriptor for libdispatch. Each pass tries again.
    case lacking
    /// The kernel does not watch the descriptor. Each pass polls it, and tries again.
    case polling(MainQueueSource)
    case running(MainQueueSource)
}

/// The descriptor that libdispatch makes readable when its main queue gets work. The first call creates it.
package func mainQueueHandle() throws(Errno) -> CInt {
    // libdispatch ends the process if it gets no descriptor.
    try OwnedDescriptor.require(1)
    return DispatchWorkers.explainingTraps { _dispatch_get_main_queue_handle_4CF() }
}

extension RunLoop.Core {
    /// Makes the main loop drain libdispatch's main queue from its first activation on.
    func serveMainQueue() {
        switch mainQueueService {
        case .running: break
        case .polling(let source):
            if source.isRegistered { mainQueueService = .running(source) } else { source.poll() }
        case .none, .lacking:
            let handle: CInt
            do throws(Errno) { handle = try mainQueueHandle() } catch { return reportMissingMainQueue(error) }
            let source = MainQueueSource(handle: handle)
            guard !inbox.isClosed, source.join(loop) else { return }
            source.membership.add(.common, common: commonModes)
            updateLeniently(source)
            if LoopDiagnostics.isReporting { source.superviseReadiness() }
            source.didJoin(.common)
            mainQueueService = .polling(source)
            serveMainQueue()
        }
    }

    /// Says once what may end the process: libdispatch itself does so without a word.
    private func reportMissingMainQueue(_ error: Errno) {
        if case .none = mainQueueService {
            SystemCall.writeToStandardError(
                "Reactor: The main queue has no descriptor: \(error). libdispatch ends the process if work is sent there "
                    + "before one is free.\n")
        }
        mainQueueService = .lacking
    }

    var mainQueue: MainQueueSource? {
        switch mainQueueService {
        case .none, .lacking: nil
        case .polling(let source), .running(let source): source
        }
    }

    /// Whether a pass has to do what the kernel does not do for the main queue.
    var lacksMainQueue: Bool {
        switch mainQueueService {
        case .none, .running: false
        case .lacking, .polling: true
        }
    }
}
