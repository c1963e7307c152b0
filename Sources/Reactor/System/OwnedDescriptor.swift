import CReactorLinux
import Glibc
package import SystemPackage

/// A descriptor that is closed when its lifetime ends.
package struct OwnedDescriptor: ~Copyable {
    package let number: CInt
    private let owner: DescriptorOwner

    package init(_ number: CInt, isOfLoop: Bool = false) {
        (self.number, owner) = (number, DescriptorOwner(of: number, isLoop: isOfLoop))
    }

    deinit { owner.close(number) }

    /// An event counter, which another thread adds to in order to wake the one that polls it (eventfd(2)).
    static func eventCounter(isOfLoop: Bool = false) throws(Errno) -> OwnedDescriptor {
        let number = try SystemCall.make { eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK)) }
        return OwnedDescriptor(number, isOfLoop: isOfLoop)
    }

    /// Checks that `count` more descriptors can be opened.
    package static func require(_ count: Int) throws(Errno) {
        guard count > 0 else { return }
        let spare = try eventCounter()
        try require(count - 1)
        _ = spare.number
    }

    /// An epoll(7) (epoll_create1(2)).
    package static func epoll() throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(try SystemCall.make { epoll_create1(CInt(EPOLL_CLOEXEC)) })
    }

    /// A run loop's timer, on the monotonic clock (timerfd_create(2)).
    static func timer() throws(Errno) -> OwnedDescriptor {
        let flags = CInt(TFD_CLOEXEC) | CInt(TFD_NONBLOCK)
        return OwnedDescriptor(
            try SystemCall.make { timerfd_create(CLOCK_MONOTONIC, flags) }, isOfLoop: true)
    }
}

/// Adds one to the event counter `number`; if the counter is full it is readable anyway, so no wake-up is lost.
func addOne(toEventCounter number: CInt) {
    callOnOwnDescriptor("eventfd_write", expecting: .resourceTemporarilyUnavailable) {
        eventfd_write(number, 1)
    }
}

/// Makes a call on a descriptor of the library's own, and repeats it while the kernel has no memory. Traps if other code has
/// closed the descriptor: otherwise the loop would hang silently.
///
/// - Parameter expected: An error that is not a failure.
/// - Returns: Whether the call succeeded.
@discardableResult
func callOnOwnDescriptor(_ name: StaticString, expecting expected: Errno? = nil, _ call: () -> CInt) -> Bool {
    while true {
        do throws(Errno) {
            try SystemCall.make(call)
            return true
        } catch {
            if error == expected { return false }
            guard error == .noMemory else { refuseClosedDescriptor(name, error) }
            sched_yield()
        }
    }
}

func refuseClosedDescriptor(_ call: StaticString, _ error: Errno) -> Never {
    fatalError(
        "\(call) failed (\(error)): other code has probably closed the run loop's epoll(7), eventfd(2) or timerfd(2) "
            + "descriptor.")
}

/// Reads and clears the event counter `number`; zero if nothing has been added.
func takeCount(ofEventCounter number: CInt) -> UInt64 { (try? SystemCall.readCount(number)) ?? 0 }
