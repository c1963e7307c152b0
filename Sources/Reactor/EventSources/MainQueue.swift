import CReactorLinux
// libdispatch is linked for the main queue's hooks.
import Dispatch
import SystemPackage

extension RunLoop.Core {
    /// Makes the main loop drain libdispatch's main queue, and so run `@MainActor` code, from its first activation on.
    ///
    /// libdispatch signals work with an eventfd, which is served like any descriptor in the common modes: once in a pass, and
    /// not while the queue is being drained further up the stack. A drain runs what the queue holds when it begins.
    func serveMainQueue() {
        guard mainQueue == nil else { return }
        // Each pass tries again until it is watched.
        lacksMainQueue = true
        let number = reactor_main_queue_handle()
        guard number >= 0 else { return }
        let source = DescriptorSource(FileDescriptor(rawValue: number), for: .readable, label: "main queue") {
            _, _ in
            // A counter: unread, it would stay readable.
            _ = takeCount(ofEventCounter: number)
            _dispatch_main_queue_callback_4CF(nil)
        }
        guard (try? loop.add(source, forMode: .common)) != nil else { return }
        mainQueue = source
        lacksMainQueue = false
    }
}
