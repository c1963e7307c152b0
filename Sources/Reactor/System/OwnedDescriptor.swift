import CReactorLinux
import Glibc
import SystemPackage

/// A descriptor that is closed when its owner lets go of it.
struct OwnedDescriptor: ~Copyable {
    let number: CInt

    init(_ number: CInt) { self.number = number }

    deinit { _ = close(number) }

    /// A counter that another thread may add to, to wake the one that waits for it (eventfd(2)).
    static func eventCounter() throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(try SystemCall.make { eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK)) })
    }

    /// An alarm on the monotonic clock (timerfd_create(2)).
    static func alarm() throws(Errno) -> OwnedDescriptor {
        let flags = CInt(TFD_CLOEXEC) | CInt(TFD_NONBLOCK)
        return OwnedDescriptor(try SystemCall.make { timerfd_create(CLOCK_MONOTONIC, flags) })
    }
}

/// Adds one to the event counter `number`; a full counter is readable already, so nothing is lost.
func addOne(toEventCounter number: CInt) {
    var one: UInt64 = 1
    _ = unsafe write(number, &one, MemoryLayout<UInt64>.size)
}

/// Takes what has been added to the event counter `number`; zero if nothing has.
func takeCount(ofEventCounter number: CInt) -> UInt64 {
    var count: UInt64 = 0
    let size = unsafe read(number, &count, MemoryLayout<UInt64>.size)
    return size > 0 ? count : 0
}
