import CReactorLinux
import Glibc
import Synchronization
package import SystemPackage

/// A POSIX thread that any number of threads may join.
package final class JoinableThread: Sendable {
    private let thread: pthread_t
    private let isJoined = Mutex(false)
    private let process = ProcessIdentity.current

    /// - Parameters:
    ///   - name: What debuggers and `top -H` show.
    ///   - receivesSignals: False for a thread of the library's own: a signal to the process is for the program's threads,
    ///     one of which may wait for it with sigwait(3).
    ///   - body: Runs on the thread.
    package init(
        name: String, receivesSignals: Bool = false, _ body: @escaping @Sendable () -> Void
    ) throws(Errno) {
        DescriptorOwner.prepare()
        let start = CallbackContext.retain(Start(name: name, body: body))
        var thread = pthread_t()
        var (all, before) = (sigset_t(), sigset_t())
        unsafe sigfillset(&all)
        // A thread inherits the mask.
        if !receivesSignals { unsafe pthread_sigmask(SIG_SETMASK, &all, &before) }
        defer { if !receivesSignals { unsafe pthread_sigmask(SIG_SETMASK, &before, nil) } }
        let code = unsafe pthread_create(&thread, nil, runBody, start)
        guard code == 0 else {
            _ = unsafe CallbackContext.take(start, as: Start.self)
            throw Errno(rawValue: code)
        }
        self.thread = thread
    }

    deinit {
        // A child of fork(2) does not have the thread, and may have another one with the same pthread_t.
        if process.isCurrent, !isJoined.withLock({ $0 }) { pthread_detach(thread) }
    }

    /// Waits until the thread has ended.
    package func join() {
        isJoined.withLock { isJoined in
            // A thread that joins itself gets an error, and is detached later.
            if !isJoined { isJoined = pthread_join(thread, nil) == 0 }
        }
    }
}

private final class Start: Sendable {
    let name: String
    let body: @Sendable () -> Void

    package init(name: String, body: @escaping @Sendable () -> Void) {
        self.name = name
        self.body = body
    }
}

private func runBody(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    let start = unsafe CallbackContext.take(argument, as: Start.self)
    // The kernel keeps 15 bytes.
    unsafe pthread_setname_np(pthread_self(), String(decoding: start.name.utf8.prefix(15), as: UTF8.self))
    start.body()
    return nil
}
