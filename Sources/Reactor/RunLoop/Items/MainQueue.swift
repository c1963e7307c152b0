import CReactorLinux
// libdispatch is linked for the main queue's hooks.
import Dispatch

/// Drains libdispatch's main queue, and so runs `@MainActor` code.
///
/// libdispatch signals work with an eventfd, which is served like any descriptor in the common modes: once in a pass, and
/// not while the queue is being drained further up the stack. A drain runs what the queue holds when it begins.
final class MainQueueSource: EventSource {
    fileprivate init(handle: CInt) { super.init(handle, for: .readable) }

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
    /// It is to, but there were no descriptors to watch it with. Each pass tries again.
    case lacking
    case running(MainQueueSource)
}

/// The descriptor that libdispatch makes readable when its main queue gets work. The first call creates it.
package func mainQueueHandle() throws(Errno) -> CInt {
    // libdispatch ends the process if it gets no descriptor.
    try OwnedDescriptor.require(1)
    return _dispatch_get_main_queue_handle_4CF()
}

extension RunLoop.Core {
    /// Makes the main loop drain libdispatch's main queue from its first activation on.
    func serveMainQueue() {
        if mainQueue != nil { return }
        mainQueueService = .lacking
        guard let handle = try? mainQueueHandle() else { return }
        let source = MainQueueSource(handle: handle)
        guard (try? loop.add(source, forMode: .common)) != nil else { return }
        mainQueueService = .running(source)
    }

    var mainQueue: MainQueueSource? {
        if case .running(let source) = mainQueueService { source } else { nil }
    }

    var lacksMainQueue: Bool { if case .lacking = mainQueueService { true } else { false } }
}
