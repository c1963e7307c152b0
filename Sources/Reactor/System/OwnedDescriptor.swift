import CReactorLinux
import Glibc
package import SystemPackage

/// A descriptor that is closed when its lifetime ends.
package struct OwnedDescriptor: ~Copyable {
    package let number: CInt

    init(_ number: CInt) { self.number = number }

    deinit { _ = close(number) }

    /// An event counter, which another thread adds to in order to wake the one that polls it (eventfd(2)).
    static func eventCounter() throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(try SystemCall.make { eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK)) })
    }

    /// An epoll(7) (epoll_create1(2)).
    package static func epoll() throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(try SystemCall.make { reactor_epoll_make() })
    }

    /// A timer on the monotonic clock (timerfd_create(2)).
    static func timer() throws(Errno) -> OwnedDescriptor {
        let flags = CInt(TFD_CLOEXEC) | CInt(TFD_NONBLOCK)
        return OwnedDescriptor(try SystemCall.make { timerfd_create(CLOCK_MONOTONIC, flags) })
    }
}

/// Adds one to the event counter `number`; if the counter is full it is readable anyway, so no wake-up is lost.
func addOne(toEventCounter number: CInt) {
    _ = eventfd_write(number, 1)
}

/// Reads and clears the event counter `number`; zero if nothing has been added.
func takeCount(ofEventCounter number: CInt) -> UInt64 {
    var count: UInt64 = 0
    let size = unsafe read(number, &count, MemoryLayout<UInt64>.size)
    return size > 0 ? count : 0
}
