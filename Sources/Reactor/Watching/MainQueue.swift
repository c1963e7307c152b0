import CReactorLinux
// libdispatch is linked for the main queue's hooks.
import Dispatch
import SystemPackage

extension RunLoop.Core {
    /// Has the main loop, from its first activation on, run what libdispatch's main queue holds, and so
    /// `@MainActor` code.
    ///
    /// libdispatch tells of work with an eventfd. It is served like any descriptor of the common modes: once
    /// in a pass, and not while it is being drained further up the stack. A drain runs what the queue holds
    /// when it begins.
    func serveMainQueue() {
        guard mainQueue == nil else { return }
        // Until it is watched, each pass tries again.
        lacksMainQueue = true
        let number = reactor_main_queue_handle()
        guard number >= 0 else { return }
        let source = DescriptorSource(FileDescriptor(rawValue: number), for: .readable) { _, _ in
            // A counter: unread, it would stay readable.
            _ = takeCount(ofEventCounter: number)
            _dispatch_main_queue_callback_4CF(nil)
        }
        guard (try? loop.add(source, forMode: .common)) != nil else { return }
        mainQueue = source
        lacksMainQueue = false
    }
}
